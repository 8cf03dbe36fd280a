package holdline

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	defaultLease = 30 * time.Second
	longestName  = 512
	// How long one request waits at most: below the idle limits of proxies. The next one continues the wait.
	longPoll = 10 * time.Second
	// Pauses between attempts while the server does not answer.
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	// How long a renewal may take: there is time for another one.
	renewalTimeout = 5 * time.Second
	// How long Unlock and a cancelled Lock try to tell the server, even if their context has ended.
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
	stop context.CancelFunc

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

// How long the lease is valid: never for longer than it was asked for.
func (g grant) valid(lease time.Duration) time.Duration {
	return time.Duration(min(g.ValidForMS, lease.Milliseconds())) * time.Millisecond
}

// Lock takes a lock, and waits for it in order of arrival.
//
// While the server or its store does not answer, Lock goes on waiting, up to its limit. If ctx ends
// first, nothing is held: the error is that of ctx. Its certainty is "unknown" if the server did not
// confirm that; the lock is then free when its first lease ends, after 30 s at most. A server that
// hangs delays the end at the limit by up to 13 s, and at the end of ctx by 3 s.
//
// The end of ctx does not end a lock that is held: it is renewed until [Lock.Unlock], or for as long
// as the process lives, also if nothing refers to it.
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
	// A longer one does not fit into the head of a request, and a server may close the connection before
	// it has read all of it: then nobody knows what became of the request.
	if name == "" || len(name) > longestName {
		return nil, invalid("name", fmt.Sprintf("must have from 1 to %d bytes, and has %d", longestName, len(name)))
	}
	if s.lease < 50*time.Millisecond || s.lease > 24*time.Hour {
		return nil, invalid("lease", fmt.Sprintf("must be from 50ms to 24h, not %v", s.lease))
	}
	if try && s.limit {
		return nil, invalid("wait", "does nothing with TryLock: use Lock")
	}
	if _, err := c.readToken(); err != nil {
		return nil, err
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	key := hex.EncodeToString(id)
	s.body["lease_duration_ms"] = s.lease.Milliseconds()
	s.body["about"] = s.about
	path := "/v1/locks/" + url.PathEscape(name)
	leasePath := path + "/leases/" + key
	end := time.Now().Add(s.wait)
	pause := firstPause
	// Whether a request may have left a grant, or a place in the queue.
	left := false
	for {
		if ctx.Err() != nil {
			failure := &Error{Kind: "cancelled", Certainty: NotApplied, Detail: "the wait for the lock was cancelled", cause: context.Cause(ctx)}
			return nil, c.giveUp(ctx, leasePath, left, failure)
		}
		poll := time.Duration(c.poll.Load())
		if s.limit {
			poll = max(min(poll, time.Until(end)), 0)
		}
		if try {
			poll = 0
		}
		s.body["wait_ms"] = poll.Milliseconds()
		sent := time.Now()
		var got grant
		failure := c.call(ctx, poll+requestTimeout, http.MethodPost, path, key, s.body, &got)
		if failure == nil {
			// The server waited after it had received the request. Its clock may be 1 % faster than ours.
			waited := time.Duration(got.WaitedMS) * time.Millisecond / 100 * 99
			answered := sent.Add(min(waited, time.Since(sent)))
			if isBefore(answered.Add(got.valid(s.lease))) {
				return c.hold(ctx, leasePath, s.lease, answered, got), nil
			}
			failure = &Error{Kind: "unavailable", Certainty: Unknown, Detail: "the answer arrived after the end of the lease"}
		}
		left = left || failure.Certainty != NotApplied || failure.Kind == "timed_out"
		over := s.limit && !time.Now().Before(end)
		switch {
		case ctx.Err() != nil:
		case failure.Field == "wait_ms" && poll > 0:
			// The server permits shorter waits only.
			c.poll.Store(int64(poll / 2))
		case failure.Kind == "timed_out" && !over:
		case (failure.Kind == "busy" || failure.isTransient()) && !try && !over:
			wait := failure.pause(pause)
			if s.limit {
				wait = min(wait, time.Until(end))
			}
			sleep(ctx, wait)
			pause = min(2*pause, longestPause)
		default:
			if failure.Kind == "busy" && !try {
				failure.Kind = "timed_out"
			}
			return nil, c.giveUp(ctx, leasePath, left, failure)
		}
	}
}

// Cancels what a request may have left, and says in the error whether that is certain.
func (c *Client) giveUp(ctx context.Context, leasePath string, left bool, failure *Error) error {
	if !left {
		return failure
	}
	err := c.call(context.WithoutCancel(ctx), partingTime, http.MethodDelete, leasePath, "", nil, &struct{}{})
	failure.Certainty = NotApplied
	if err != nil && err.Status != http.StatusGone {
		failure.Certainty = Unknown
	}
	return failure
}

func (c *Client) hold(ctx context.Context, leasePath string, lease time.Duration, answered time.Time, got grant) *Lock {
	valid := got.valid(lease)
	held, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	keeping, stop := context.WithCancel(held)
	lock := &Lock{
		client: c, path: leasePath, token: got.FencingToken, lease: lease,
		ctx: held, cancel: cancel, stop: stop, validUntil: answered.Add(valid),
	}
	go lock.keep(keeping, answered.Add(valid/3))
	return lock
}

// Renews the lease until it is released or lost, and looks at the clocks meanwhile.
func (l *Lock) keep(ctx context.Context, renewAt time.Time) {
	renewed := make(chan time.Time, 1)
	renewing := false
	for l.IsHeld() {
		if !renewing && !isBefore(renewAt) {
			renewing = true
			go func() { renewed <- l.renew(ctx) }()
		}
		next := min(time.Until(l.deadline()), clockTick)
		if !renewing {
			next = min(next, time.Until(renewAt))
		}
		select {
		case <-ctx.Done():
			return
		case renewAt = <-renewed:
			renewing = false
		case <-time.After(next):
		}
	}
}

// Renews once, and returns when to renew next.
func (l *Lock) renew(ctx context.Context) time.Time {
	sent := time.Now()
	pause := min(longestPause, l.lease/10)
	var got grant
	body := map[string]any{"lease_duration_ms": l.lease.Milliseconds()}
	limit := min(renewalTimeout, max(l.lease/3, 50*time.Millisecond), max(time.Until(l.deadline()), time.Millisecond))
	err := l.client.call(ctx, limit, http.MethodPut, l.path, "", body, &got)
	if err == nil {
		valid := got.valid(l.lease)
		l.mutex.Lock()
		defer l.mutex.Unlock()
		if until := sent.Add(valid); until.After(l.validUntil) {
			l.validUntil = until
		}
		return sent.Add(max(valid/3, pause))
	}
	if err.Kind == "lost" || err.Kind == "cancelled" {
		l.lose(err)
	}
	// Whatever else happened, the lease is held until its end, and another attempt may succeed.
	return time.Now().Add(pause)
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
	now := clock()
	return now.Before(moment) && now.Round(0).Before(moment.Round(0))
}

// Tests set it.
var clock = time.Now

// String names the lock by its token. It never has the lease id.
func (l *Lock) String() string { return fmt.Sprintf("lock with the token %d", l.token) }

// Token returns the fencing token. It grows with each grant of the name.
func (l *Lock) Token() uint64 { return l.token }

// Context ends when the lease is lost, and when it is released. [context.Cause] then says why:
// [ErrLost], or [context.Canceled] after Unlock. It has the values of the context of Lock. Its Err and
// Done look at the clocks. Work that waits in Done is notified up to a second after a suspension.
func (l *Lock) Context() context.Context { return leaseContext{l.ctx, l} }

// A context that looks at the clocks when it is used. A process that was paused for longer than its
// lease may go on before any timer has run.
type leaseContext struct {
	context.Context
	lock *Lock
}

func (c leaseContext) Done() <-chan struct{} {
	c.lock.IsHeld()
	return c.Context.Done()
}

func (c leaseContext) Err() error {
	c.lock.IsHeld()
	return c.Context.Err()
}

// IsHeld reports whether the lease is certain to be held at this moment.
func (l *Lock) IsHeld() bool {
	if l.ctx.Err() == nil && !isBefore(l.deadline()) {
		l.lose(&Error{Certainty: Applied, Lost: "expired", Detail: "the lease could not be renewed in time, and is over"})
	}
	return l.ctx.Err() == nil
}

// Unlock releases the lock. A second call returns the result of the first.
//
// [ErrLost] means that the lease was over before. [ErrUnavailable] means that the server did not
// confirm the release: the lock is free when the lease ends. Unlock tries until then, or until ctx
// ends, but for 3 s at least.
func (l *Lock) Unlock(ctx context.Context) error {
	l.release.Do(func() { l.released = l.unlock(ctx) })
	return l.released
}

func (l *Lock) unlock(ctx context.Context) error {
	l.stop()
	l.IsHeld()
	lost := context.Cause(l.ctx)
	l.cancel(nil)
	until := time.Now().Add(partingTime)
	parting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(time.Until(until), cancel) })()
	if lost != nil {
		// The server may have the lease still: this client has a shorter view of it.
		_ = l.client.call(parting, partingTime, http.MethodDelete, l.path, "", nil, &struct{}{})
		return lost
	}
	pause := firstPause
	// Whether an attempt may have been carried out, and its answer was lost.
	unsure := false
	for {
		failure := l.client.call(parting, requestTimeout, http.MethodDelete, l.path, "", nil, &struct{}{})
		if failure == nil || unsure && failure.Lost == "missing" {
			return nil
		}
		if !failure.isTransient() {
			return failure
		}
		unsure = unsure || failure.Certainty != NotApplied
		if unsure {
			failure.Certainty = Unknown
		}
		sleep(parting, failure.pause(pause))
		if parting.Err() != nil || !isBefore(l.deadline()) {
			return failure
		}
		pause = min(2*pause, longestPause)
	}
}

func sleep(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
