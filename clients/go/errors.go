package holdline

import (
	"fmt"
	"time"
)

// Certainty says whether a request that failed took effect.
type Certainty string

// What is known of a request that failed.
const (
	Applied    Certainty = "applied"
	NotApplied Certainty = "not_applied"
	Unknown    Certainty = "unknown"
)

// Errors to compare with, by [errors.Is].
var (
	// ErrBusy: another client holds the lock, and TryLock does not wait.
	ErrBusy = &Error{Kind: "busy"}
	// ErrTimedOut: the wait limit has passed.
	ErrTimedOut = &Error{Kind: "timed_out"}
	// ErrLost: the lease is over. Another client may hold the lock.
	ErrLost = &Error{Kind: "lost"}
	// ErrUnavailable: the server, or its store, does not answer.
	ErrUnavailable = &Error{Kind: "unavailable"}
	// ErrForbidden: the token lacks a right.
	ErrForbidden = &Error{Kind: "forbidden"}
	// ErrInvalid: an argument has a wrong value. [Error.Field] names it.
	ErrInvalid = &Error{Kind: "invalid"}
)

// Error is what every function of this package returns on a failure.
type Error struct {
	// What went wrong, in a word: "busy", "timed_out", "lost", … as docs/server.md lists them.
	Kind      string    `json:"kind"`
	Certainty Certainty `json:"certainty"`
	// The HTTP status, or 0 if there was no answer.
	Status int    `json:"-"`
	Detail string `json:"detail"`
	// The field that is wrong, and what to do.
	Field string `json:"field"`
	Fix   string `json:"fix"`
	// Why a lease is lost: "expired", "revoked", "missing", …
	Lost string `json:"lost"`
	// Who holds the lock, if the token has the right to see it.
	Holder *Holder `json:"holder"`
	// After how many seconds another attempt is worth it.
	RetryAfter int64 `json:"retry_after"`

	cause error
}

// Holder is who holds a lock, as it describes itself.
type Holder struct {
	FencingToken uint64 `json:"fencing_token"`
	About        struct {
		Host    string            `json:"host"`
		PID     int               `json:"pid"`
		User    string            `json:"user"`
		Program string            `json:"program"`
		Reason  string            `json:"reason"`
		Labels  map[string]string `json:"labels"`
	} `json:"about"`
}

// Error describes the failure in one line. It never has a token or a lease id.
func (e *Error) Error() string {
	text := "holdline: " + e.Detail
	if e.Detail == "" {
		text += e.Kind
	}
	if e.Field != "" {
		text += fmt.Sprintf(" (field %s)", e.Field)
	}
	if e.Fix != "" {
		text += "; " + e.Fix
	}
	if e.Certainty == Unknown {
		text += " (whether it took effect is unknown)"
	}
	return text
}

// Is compares the kinds, so that errors.Is(err, holdline.ErrBusy) works.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Kind == e.Kind
}

// Unwrap returns the error of the context, if that ended the call, or of the server's certificate.
func (e *Error) Unwrap() error { return e.cause }

// Reports whether the same request may succeed later.
func (e *Error) isTransient() bool {
	if e.cause != nil || e.Kind == "refused" || e.Kind == "protocol" || e.Kind == "not_initialised" {
		return false
	}
	return e.Status == 0 || e.Status == 408 || e.Status == 429 || e.Status >= 500
}

// How long to wait before the next attempt.
func (e *Error) pause(otherwise time.Duration) time.Duration {
	if e.RetryAfter > 0 {
		return time.Duration(min(e.RetryAfter, 5)) * time.Second
	}
	return otherwise
}

func invalid(field, detail string) *Error {
	return &Error{Kind: "invalid", Certainty: NotApplied, Field: field, Detail: detail}
}
