package holdline

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	defaultLease = 30 * time.Second
	// How long one request waits: below the idle limits of proxies. The next one continues the wait.
	longPoll = 10 * time.Second
	// Pauses between attempts while the server does not answer.
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	// How long a renewal may take: the lease is looked at between two of them.
	renewalTimeout = 5 * time.Second
	// How long Unlock and a cancelled Lock try to tell the server, if their context has ended.
	partingTime = 3 * time.Second
	// How often a lock looks at the wall clock, which goes on while the machine is suspended.
	clockTick = time.Second
)

// Option is a setting of one lock.
type Option func(*settings)

type settings struct {
	body  map[string]any
	wait  time.Duration
	limit bool
	lease time.Duration
	about map[string]any
}

// Wait limits how long Lock waits. Without it, Lock waits until its context ends.
func Wait(limit time.Duration) Option {
	return func(s *settings) {
		s.wait = limit
		s.limit = true
	}
}

// Lease sets how long the server keeps the lock after the last renewal: 30 s unless set. The lease
// of a process that dies lasts that long.
func Lease(duration time.Duration) Option {
	return func(s *settings) { s.lease = duration }
}

// Shared takes a read lock: others may hold it too, but no exclusive lock.
func Shared() Option {
	return func(s *settings) { s.body["mode"] = "shared" }
}

// Permits takes some permits of a semaphore that has `of`.
func Permits(count, of int) Option {
	return func(s *settings) {
		s.body["mode"] = "permits"
		s.body["permits"] = count
		s.body["permits_of"] = of
	}
}

// Reason says why the lock is held, for those who see it.
func Reason(text string) Option {
	return func(s *settings) { s.about["reason"] = text }
}

// Lock is a lock that is held. It is safe for concurrent use.
type Lock struct {
	client *Client
	path   string
	token  uint64
	lease  time.Duration
	ctx    context.Context
	cancel context.CancelCauseFunc
	// Ends the renewals, without a loss.
	stop    context.CancelFunc
	stopped chan struct{}

	mutex      sync.Mutex
	validUntil time.Time

	release  sync.Once
	released error
}

type grant struct {
	FencingToken uint64 `json:"fencing_token"`
	ValidForMS   int64  `json:"valid_for_ms"`
	WaitedMS     int64  `json:"waited_ms"`
}

// Lock takes a lock, and waits for it in order of arrival.
//
// While the server or its store does not answer, Lock goes on waiting, up to its limit. If ctx ends
// first, nothing is held: the error is that of ctx. Its certainty is "unknown" if the server did not
// confirm that; the lock is then free when its first lease ends, after 30 s at most.
//
// The end of ctx does not end a lock that is held: it is renewed until [Lock.Unlock], or for as long
// as the process lives.
func (c *Client) Lock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, name, false, options)
}

// TryLock takes a lock if it is free. Otherwise the error is [ErrBusy], and names the holder.
func (c *Client) TryLock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, name, true, options)
}

func (c *Client) lock(ctx context.Context, name string, try bool, options []Option) (*Lock, error) {
	s := settings{body: map[string]any{}, lease: defaultLease, about: maps.Clone(c.about)}
	for _, option := range options {
		option(&s)
	}
	if name == "" {
		return nil, invalid("name", "is empty")
	}
	if s.lease < 50*time.Millisecond || s.lease > 24*time.Hour {
		return nil, invalid("lease", fmt.Sprintf("must be from 50ms to 24h, not %v", s.lease))
	}
	if try && s.limit {
		return nil, invalid("wait", "does nothing with TryLock: use Lock")
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("holdline: no random lease id: %w", err)
	}
	key := hex.EncodeToString(id)
	s.body["lease_duration_ms"] = s.lease.Milliseconds()
	s.body["about"] = s.about
	path := "/v1/locks/" + url.PathEscape(name)
	leasePath := path + "/leases/" + key
	var end time.Time
	if s.limit {
		end = time.Now().Add(s.wait)
	}
	pause := firstPause
	for {
		poll := longPoll
		if left := time.Until(end); s.limit && left < poll {
			poll = max(left, 0)
		}
		if try {
			poll = 0
		}
		s.body["wait_ms"] = poll.Milliseconds()
		sent := time.Now()
		var got grant
		err := c.call(ctx, poll+requestTimeout, http.MethodPost, path, key, s.body, &got)
		if err == nil {
			return c.hold(ctx, leasePath, s.lease, sent, got), nil
		}
		var failure *Error
		if !errors.As(err, &failure) {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, c.giveUp(ctx, leasePath, &Error{Kind: "cancelled", Detail: "the wait for the lock was cancelled", cause: context.Cause(ctx)})
		}
		over := s.limit && !time.Now().Before(end)
		switch {
		case failure.Kind == "timed_out" && !over, failure.Kind == "busy" && !try && !over:
			continue
		case failure.Kind == "busy" && !try:
			failure.Kind = "timed_out"
			return nil, failure
		case failure.isTransient() && !try && !over:
			wait := failure.pause(pause)
			if s.limit {
				wait = min(wait, max(time.Until(end), 0))
			}
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			pause = min(2*pause, longestPause)
		case failure.Certainty == Unknown:
			return nil, c.giveUp(ctx, leasePath, failure)
		default:
			return nil, failure
		}
	}
}

// Cancels a request that may have been granted, and says in the error whether that is certain.
func (c *Client) giveUp(ctx context.Context, leasePath string, failure *Error) error {
	ctx = context.WithoutCancel(ctx)
	err := c.call(ctx, partingTime, http.MethodDelete, leasePath, "", nil, nil)
	var answer *Error
	failure.Certainty = NotApplied
	if err != nil && !(errors.As(err, &answer) && answer.Status == http.StatusGone) {
		failure.Certainty = Unknown
	}
	return failure
}

// Begins to hold a lock. The lease counts from the moment at which the server answered at the
// earliest: it waited after it had received the request.
func (c *Client) hold(ctx context.Context, leasePath string, lease time.Duration, sent time.Time, got grant) *Lock {
	answered := sent.Add(time.Duration(got.WaitedMS) * time.Millisecond)
	if now := time.Now(); answered.After(now) {
		answered = now
	}
	valid := time.Duration(got.ValidForMS) * time.Millisecond
	held, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	keeping, stop := context.WithCancel(held)
	lock := &Lock{
		client: c, path: leasePath, token: got.FencingToken, lease: lease,
		ctx: held, cancel: cancel, stop: stop, stopped: make(chan struct{}),
		validUntil: answered.Add(valid),
	}
	go lock.keep(keeping, answered.Add(valid/3))
	return lock
}

// Renews the lease until it is released or lost.
func (l *Lock) keep(ctx context.Context, renewAt time.Time) {
	defer close(l.stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if !l.IsHeld() {
			l.lose(&Error{Kind: "lost", Certainty: Applied, Lost: "expired", Detail: "the lease could not be renewed in time, and is over"})
			return
		}
		if !isBefore(renewAt) {
			next, lost := l.renew(ctx)
			if lost != nil {
				l.lose(lost)
				return
			}
			renewAt = next
			continue
		}
		timer.Reset(max(0, min(time.Until(renewAt), time.Until(l.deadline()), clockTick)))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// Renews once. Returns when to renew next, or why the lease is lost.
func (l *Lock) renew(ctx context.Context) (time.Time, *Error) {
	sent := time.Now()
	var got grant
	body := map[string]any{"lease_duration_ms": l.lease.Milliseconds()}
	limit := min(renewalTimeout, max(l.lease/3, 50*time.Millisecond), max(time.Until(l.deadline()), time.Millisecond))
	err := l.client.call(ctx, limit, http.MethodPut, l.path, "", body, &got)
	if err == nil {
		valid := time.Duration(got.ValidForMS) * time.Millisecond
		l.mutex.Lock()
		l.validUntil = sent.Add(valid)
		l.mutex.Unlock()
		return sent.Add(valid / 3), nil
	}
	var failure *Error
	if errors.As(err, &failure) && (failure.Kind == "lost" || failure.Kind == "cancelled") {
		return time.Time{}, failure
	}
	// Whatever else happened, the lease is held until its end, and another attempt may succeed.
	return time.Now().Add(min(longestPause, l.lease/10)), nil
}

func (l *Lock) lose(why *Error) {
	why.Kind = "lost"
	l.cancel(why)
}

func (l *Lock) deadline() time.Time {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.validUntil
}

// Reports whether a moment is still to come, by the monotonic clock and by the wall clock. The
// monotonic clock of Go stands still while a machine is suspended; the wall clock may be set back.
func isBefore(moment time.Time) bool {
	now := time.Now()
	return now.Before(moment) && now.Round(0).Before(moment.Round(0))
}

// Token returns the fencing token. It grows with each grant of the name.
func (l *Lock) Token() uint64 { return l.token }

// Context ends when the lease is lost, and when it is released. [context.Cause] then says why:
// [ErrLost], or [context.Canceled] after Unlock. It has the values of the context of Lock.
func (l *Lock) Context() context.Context { return l.ctx }

// IsHeld reports whether the lease is certain to be held at this moment.
func (l *Lock) IsHeld() bool {
	return l.ctx.Err() == nil && isBefore(l.deadline())
}

// Unlock releases the lock. A second call returns the result of the first.
//
// [ErrLost] means that the lease was over before. [ErrUnavailable] means that the server did not
// confirm the release: the lock is free when the lease ends. If ctx has ended already, Unlock still
// tries for 3 s.
func (l *Lock) Unlock(ctx context.Context) error {
	l.release.Do(func() { l.released = l.unlock(ctx) })
	return l.released
}

func (l *Lock) unlock(ctx context.Context) error {
	l.stop()
	<-l.stopped
	lost := context.Cause(l.ctx)
	l.cancel(nil)
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), partingTime)
		defer cancel()
	}
	if lost != nil {
		// The server may have the lease still: this client has a shorter view of it.
		_ = l.client.call(ctx, partingTime, http.MethodDelete, l.path, "", nil, nil)
		return lost
	}
	pause := firstPause
	for {
		err := l.client.call(ctx, requestTimeout, http.MethodDelete, l.path, "", nil, nil)
		var failure *Error
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &failure):
			return err
		case failure.Kind == "lost" && failure.Lost == "missing" && pause > firstPause:
			// An attempt before this one was carried out, and its answer was lost.
			return nil
		case !failure.isTransient() || !isBefore(l.deadline()):
			return failure
		}
		select {
		case <-ctx.Done():
			return failure
		case <-time.After(failure.pause(pause)):
		}
		pause = min(2*pause, longestPause)
	}
}
