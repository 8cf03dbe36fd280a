package holdline

// Locks whose machine is suspended, or whose wall clock is stepped. Go reads the clocks without the C
// library, so they are set here, in the package.

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// Sets the wall clock so far off, and leaves the monotonic clock as it is.
func stepped(t *testing.T, now time.Time, by time.Duration) time.Time {
	t.Helper()
	other := now.Add(by)
	// After the wall clock, a time.Time has the monotonic one.
	monotonic := (*int64)(unsafe.Add(unsafe.Pointer(&other), unsafe.Sizeof(uint64(0))))
	*monotonic -= int64(by)
	if other.Sub(now) != 0 || other.Round(0).Sub(now.Round(0)) != by {
		t.Error("a time.Time of this Go is made in another way")
	}
	return other
}

func TestAClockThatIsSteppedAndAMachineThatIsSuspended(t *testing.T) {
	var offset atomic.Int64
	clock = func() time.Time { return stepped(t, time.Now(), time.Duration(offset.Load())) }
	defer func() { clock = time.Now }()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodPut:
			w.WriteHeader(http.StatusBadGateway)
		default:
			_, _ = io.WriteString(w, `{"fencing_token": 1, "valid_for_ms": 60000}`)
		}
	}))
	defer server.Close()
	client, err := New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	take := func(lease time.Duration) *Lock {
		offset.Store(0)
		lock, err := client.Lock(context.Background(), "a", Lease(lease))
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
	lost := func(lock *Lock) {
		t.Helper()
		cause := context.Cause(lock.Context())
		if !errors.Is(cause, ErrLost) || cause.(*Error).Lost != "expired" || lock.IsHeld() {
			t.Fatalf("not lost: %v", cause)
		}
		if err := lock.Unlock(context.Background()); !errors.Is(err, ErrLost) {
			t.Fatalf("Unlock: %v", err)
		}
	}

	// The machine was suspended, or the clock set forward, for longer than the lease.
	suspended := take(time.Minute)
	child, cancel := context.WithCancel(suspended.Context())
	defer cancel()
	offset.Store(int64(time.Hour))
	if suspended.Context().Err() == nil {
		t.Fatal("the first look does not see it")
	}
	<-child.Done()
	lost(suspended)

	// A short step neither ends the lease nor hides its end.
	short := take(time.Minute)
	offset.Store(int64(10 * time.Second))
	if !short.IsHeld() {
		t.Fatalf("lost after 10 s of a minute: %v", context.Cause(short.Context()))
	}
	if err := short.Unlock(context.Background()); err != nil {
		t.Fatal(err)
	}

	// A clock that is set back prolongs nothing.
	back := take(500 * time.Millisecond)
	offset.Store(-int64(time.Hour))
	<-back.Context().Done()
	lost(back)
}
