package holdline_test

// What networks, proxies, files, clocks and stopped processes do to a lock. Where a fault needs
// another answer than a real server gives, a small server of the test gives it.

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdline.test/holdline"
)

// What a server answers, by method.
type answers map[string]http.HandlerFunc

func (a answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	a[r.Method](w, r)
}

func granted(validMS int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"fencing_token": 7, "valid_for_ms": %d, "waited_ms": 0}`, validMS)
	}
}

func refused(status int, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"kind": %q, "certainty": "not_applied", "lost": "missing"}`, kind)
	}
}

func released(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, `{"outcome":"released"}`)
}

func cut(w http.ResponseWriter, _ *http.Request) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = connection.Close()
	}
}

// Answers each request in its turn; the last answer stays.
func inTurn(handlers ...http.HandlerFunc) http.HandlerFunc {
	var count atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		handlers[min(int(count.Add(1)), len(handlers))-1](w, r)
	}
}

func fake(t *testing.T, a answers) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	return s
}

func failure(t *testing.T, err error) *holdline.Error {
	t.Helper()
	var failure *holdline.Error
	if !errors.As(err, &failure) {
		t.Fatalf("no failure: %v", err)
	}
	return failure
}

// The first request is lost after it was read, and then the server is gone.
func TestALaterRefusalDoesNotMakeAnEarlierRequestCertain(t *testing.T) {
	var s *httptest.Server
	s = fake(t, answers{"POST": func(w http.ResponseWriter, r *http.Request) {
		_ = s.Listener.Close()
		cut(w, r)
	}})
	_, err := client(t, s.URL).Lock(within(t), "a", holdline.Wait(300*time.Millisecond))
	if failure := failure(t, err); failure.Certainty != holdline.Unknown {
		t.Fatalf("the first request may have been granted: %+v", failure)
	}
}

// Go's transport repeats a request by itself, if a kept connection breaks.
func TestARepeatOfTheTransportIsNotCertain(t *testing.T) {
	var s *httptest.Server
	s = fake(t, answers{"DELETE": released, "POST": inTurn(granted(30000), func(w http.ResponseWriter, r *http.Request) {
		_ = s.Listener.Close()
		cut(w, r)
	})})
	c := client(t, s.URL)
	free(t, take(t, c, "a"))
	_, err := c.TryLock(within(t), "a")
	if failure := failure(t, err); failure.Certainty != holdline.Unknown {
		t.Fatalf("the request may have been granted: %+v", failure)
	}
}

func TestACancelledContextSendsNothingAndIsCertain(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	s := fake(t, answers{})
	_, err := client(t, s.URL).Lock(ctx, "a")
	if failure := failure(t, err); failure.Certainty != holdline.NotApplied || !errors.Is(err, context.Canceled) {
		t.Fatalf("nothing was sent: %+v", failure)
	}
	s.Close()
	ctx, cancel = context.WithTimeout(within(t), 200*time.Millisecond)
	defer cancel()
	_, err = client(t, s.URL).Lock(ctx, "a")
	if failure := failure(t, err); failure.Certainty != holdline.NotApplied || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("no connection was made: %+v", failure)
	}
}

func TestAWaitThatEndsLeavesTheQueueAtOnce(t *testing.T) {
	var left atomic.Int32
	s := fake(t, answers{"POST": refused(423, "timed_out"), "DELETE": func(w http.ResponseWriter, r *http.Request) {
		left.Add(1)
		refused(410, "lost")(w, r)
	}})
	_, err := client(t, s.URL).Lock(within(t), "a", holdline.Wait(time.Millisecond))
	if !errors.Is(err, holdline.ErrTimedOut) || failure(t, err).Certainty != holdline.NotApplied || left.Load() != 1 {
		t.Fatalf("the place in the queue stays for seconds: %v", err)
	}
}

func TestAServerThatPermitsOnlyShortWaits(t *testing.T) {
	t.Parallel()
	for _, longest := range []int{3000, 0} {
		path := filepath.Join(t.TempDir(), "server.toml")
		config := fmt.Sprintf("[server]\nlisten = \"127.0.0.1:0\"\n[server.limits]\nmax_wait_ms = %d\n", longest)
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		c, lockName := client(t, serve(t, "--config", path).url), name(t)
		lock := take(t, c, lockName)
		time.AfterFunc(time.Second, func() { _ = lock.Unlock(context.Background()) })
		free(t, take(t, c, lockName))
	}
}

// The order of a rotation: the server knows both tokens, the file is replaced, the old token ends.
func TestATokenThatIsReplacedDuringAWait(t *testing.T) {
	directory := t.TempDir()
	write := func(file, text string) string {
		path := filepath.Join(directory, file)
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	entry := func(name, token string) string {
		return fmt.Sprintf("[[server.tokens]]\nname = %q\nsha256 = \"%x\"\nrights = [\"admin\"]\n", name, sha256.Sum256([]byte(token)))
	}
	head := "[server]\nlisten = \"127.0.0.1:0\"\n"
	old, next := strings.Repeat("old", 12), strings.Repeat("new", 12)
	s := serve(t, "--config", write("server.toml", head+entry("old", old)+entry("new", next)))
	c, lockName := client(t, s.url, holdline.WithTokenFile(write("token", old))), name(t)
	holder := take(t, c, lockName)
	waiting := make(chan error)
	go func() {
		lock, err := c.Lock(within(t), lockName)
		if err == nil {
			err = lock.Unlock(within(t))
		}
		waiting <- err
	}()
	time.Sleep(500 * time.Millisecond)
	write("token", next)
	write("server.toml", head+entry("new", next))
	if err := s.process.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	free(t, holder)
	if err := <-waiting; err != nil {
		t.Fatalf("the wait ended with the old token: %v", err)
	}
}

func TestATokenFileThatIsAwayIsAnErrorAtTheStartOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	s := fake(t, answers{"DELETE": released, "POST": inTurn(func(w http.ResponseWriter, r *http.Request) {
		write("")
		time.AfterFunc(200*time.Millisecond, func() { write("good") })
		refused(423, "timed_out")(w, r)
	}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			refused(401, "unauthenticated")(w, r)
			return
		}
		granted(30000)(w, r)
	})})
	c := client(t, s.URL, holdline.WithTokenFile(path))
	ctx, cancel := context.WithTimeout(within(t), 10*time.Second)
	defer cancel()
	for range 2 {
		if _, err := c.Lock(ctx, "a"); failure(t, err).Kind != "unauthenticated" || strings.Contains(err.Error(), "lines") {
			t.Fatalf("no token that can be sent: %v", err)
		}
		write("two\nlines")
	}
	write("good")
	free(t, take(t, c, "a"))
}

func TestAProxyThatRefusesForAWhileIsWaitedFor(t *testing.T) {
	t.Parallel()
	busy := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "slow down", http.StatusTooManyRequests)
	}
	s := fake(t, answers{"POST": inTurn(busy, granted(30000)), "DELETE": inTurn(busy, released)})
	began := time.Now()
	free(t, take(t, client(t, s.URL), "a"))
	if time.Since(began) < 2*time.Second {
		t.Fatal("Retry-After was not kept")
	}
}

func TestAnswersThatAreNoneEndTheCall(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write(make([]byte, 1<<16))
		}
	}
	text := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
	}
	for what, post := range map[string]http.HandlerFunc{
		"endless": endless, "no JSON": text(200, "<html>"), "a redirect": text(307, ""), "a list": text(200, "[]"), "cut": cut, "empty": text(200, "{}"),
	} {
		s := fake(t, answers{"POST": post, "DELETE": released})
		lock, err := client(t, s.URL).TryLock(within(t), "a")
		if lock != nil || failure(t, err).Certainty != holdline.NotApplied {
			t.Errorf("%s: %v, %v", what, lock, err)
		}
	}
}

func TestAReleaseThatNoHoldlineServerConfirmsIsAnError(t *testing.T) {
	s := fake(t, answers{"POST": granted(30000), "DELETE": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>Welcome to this network</html>")
	}})
	if err := take(t, client(t, s.URL), "a").Unlock(within(t)); failure(t, err).Kind != "protocol" {
		t.Fatal(err)
	}
}

func TestALeaseIsNeverBelievedForLongerThanItWasAskedFor(t *testing.T) {
	s := fake(t, answers{"DELETE": released, "PUT": refused(503, "unavailable"), "POST": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"fencing_token": 1, "valid_for_ms": 600000, "waited_ms": 9223372036854775807}`)
	}})
	lock := take(t, client(t, s.URL), "a", holdline.Lease(200*time.Millisecond))
	select {
	case <-lock.Context().Done():
	case <-time.After(patience):
		t.Fatal("believed for ever")
	}
	if err := lock.Unlock(within(t)); !errors.Is(err, holdline.ErrLost) {
		t.Fatal(err)
	}
}

// The answer arrives after the lease: a process that was paused, or a proxy that was slow.
func TestAGrantThatArrivesTooLateIsNotReturned(t *testing.T) {
	s := fake(t, answers{"DELETE": released, "POST": inTurn(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(300 * time.Millisecond)
		granted(100)(w, r)
	}, granted(60000))})
	lock := take(t, client(t, s.URL), "a", holdline.Lease(time.Minute))
	if !lock.IsHeld() {
		t.Fatal("Lock returned a lock that is lost")
	}
	free(t, lock)
}

func TestARenewalWithoutALeaseLosesNothing(t *testing.T) {
	t.Parallel()
	var renewals atomic.Int32
	s := fake(t, answers{"DELETE": released, "POST": granted(30000), "PUT": func(w http.ResponseWriter, _ *http.Request) {
		renewals.Add(1)
		_, _ = io.WriteString(w, "{}")
	}})
	lock := take(t, client(t, s.URL), "a", holdline.Lease(9*time.Second))
	for renewals.Load() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	if !lock.IsHeld() || renewals.Load() > 5 {
		t.Fatalf("%d renewals, %v", renewals.Load(), context.Cause(lock.Context()))
	}
	free(t, lock)
}

func TestALeaseThatIsMissingWithoutAReleaseIsLost(t *testing.T) {
	s := fake(t, answers{"POST": granted(30000), "DELETE": inTurn(refused(503, "unavailable"), refused(410, "lost"))})
	lock := take(t, client(t, s.URL), "a")
	if err := lock.Unlock(within(t)); !errors.Is(err, holdline.ErrLost) {
		t.Fatalf("nobody released it: %v", err)
	}
}

func TestAContextThatEndsDuringUnlockLeavesNoOrphan(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	var deletes atomic.Int32
	s := fake(t, answers{"POST": granted(30000), "DELETE": func(w http.ResponseWriter, r *http.Request) {
		if deletes.Add(1) == 1 {
			cancel()
			time.Sleep(50 * time.Millisecond)
			refused(503, "unavailable")(w, r)
			return
		}
		released(w, r)
	}})
	lock := take(t, client(t, s.URL), "a")
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			if err := lock.Unlock(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if deletes.Load() != 2 {
		t.Fatalf("%d requests", deletes.Load())
	}
}

func TestAServerThatNobodyVouchesForIsNotWaitedFor(t *testing.T) {
	s := httptest.NewUnstartedServer(answers{})
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(within(t), 10*time.Second)
	defer cancel()
	_, err := client(t, s.URL).Lock(ctx, "a")
	var untrusted *tls.CertificateVerificationError
	if failure := failure(t, err); failure.Kind != "unavailable" || failure.Certainty != holdline.NotApplied || !errors.As(err, &untrusted) {
		t.Fatalf("%+v", failure)
	}
}

// A configuration of other clients of this program may name HTTP/2, which this client does not speak.
func TestATLSConfigurationThatNamesHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(answers{"POST": granted(30000), "DELETE": released})
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"h2", "http/1.1"}
	lock, err := client(t, s.URL, holdline.WithTLS(config)).TryLock(within(t), "a")
	if err != nil {
		t.Fatal(err)
	}
	free(t, lock)
}

// A firewall forgets connections: what is sent on them is never answered. New ones work.
func TestDeadConnectionsCostNoLease(t *testing.T) {
	t.Parallel()
	s := serve(t, "--listen", "127.0.0.1:0")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	dead := make(chan struct{})
	var answered atomic.Int64
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", s.address())
			if err != nil {
				return
			}
			select {
			case <-dead:
				go func() { _, _ = io.Copy(far, near) }()
				go func() {
					n, _ := io.CopyN(near, far, 1)
					answered.Add(n)
					_, _ = io.Copy(near, far)
				}()
				continue
			default:
			}
			pass := func(to, from net.Conn) {
				buffer := make([]byte, 1<<16)
				for {
					n, err := from.Read(buffer)
					if err != nil {
						return
					}
					select {
					case <-dead:
					default:
						_, _ = to.Write(buffer[:n])
					}
				}
			}
			go pass(far, near)
			go pass(near, far)
		}
	}()
	c, lockName := client(t, "http://"+listener.Addr().String()), name(t)
	lock := take(t, c, lockName, holdline.Lease(18*time.Second))
	var group sync.WaitGroup
	for number := range 8 {
		group.Go(func() { free(t, take(t, c, fmt.Sprint(lockName, number))) })
	}
	group.Wait()
	close(dead)
	for answered.Load() == 0 && lock.IsHeld() {
		time.Sleep(10 * time.Millisecond)
	}
	if !lock.IsHeld() {
		t.Fatalf("lost, though the server can be reached: %v", context.Cause(lock.Context()))
	}
	free(t, lock)
}

// The process is stopped for longer than its lease. When it goes on, its context has ended before
// its first look, whatever timers have not run yet.
func TestAProcessThatWasStoppedSeesItsLossAtItsFirstLook(t *testing.T) {
	t.Parallel()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "HOLDLINE_TEST_CHILD="+name(t), "GOMAXPROCS=1")
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Signal(syscall.SIGCONT)
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	lines := bufio.NewScanner(output)
	if !lines.Scan() || lines.Text() != "holds" {
		t.Fatalf("the child does not hold: %q", lines.Text())
	}
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "lost" {
		t.Fatalf("after the stop: %q", lines.Text())
	}
}

// Holds a lock, and looks at its context all the time.
func beTheChild(name string) {
	c, err := holdline.New(os.Getenv("HOLDLINE_TEST_SERVER"))
	if err != nil {
		panic(err)
	}
	lock, err := c.Lock(context.Background(), name, holdline.Lease(2*time.Second))
	if err != nil {
		panic(err)
	}
	fmt.Println("holds")
	for last := time.Now(); ; {
		now := time.Now()
		ended := lock.Context().Err() != nil
		switch {
		case ended:
			fmt.Println("lost")
			return
		case now.Sub(last) > 2*time.Second:
			fmt.Println("believes in its lock after", now.Sub(last))
			return
		}
		last = now
	}
}

func TestHostileNamesAndReasons(t *testing.T) {
	s := serve(t, "--listen", "127.0.0.1:0")
	c := client(t, s.url)
	prefix := name(t)
	for _, rest := range []string{"/", "//", "/../x", "/%2F", "/%", "/a?b#c", "/ä/漢", "/a b", "/+", "/;,:@&="} {
		lock, err := c.TryLock(within(t), prefix+rest)
		if err != nil {
			t.Errorf("%q: %v", rest, err)
			continue
		}
		response, err := http.Get(s.url + "/v1/locks?prefix=" + url.QueryEscape(prefix))
		if err != nil {
			t.Fatal(err)
		}
		var read struct {
			Locks []struct {
				Name string `json:"name"`
			} `json:"locks"`
		}
		err = json.NewDecoder(response.Body).Decode(&read)
		_ = response.Body.Close()
		if err != nil || len(read.Locks) != 1 || read.Locks[0].Name != prefix+rest {
			t.Errorf("%q is held as %+v, %v", rest, read, err)
		}
		free(t, lock)
	}
	for _, bad := range []string{"", "a\x00b", "a\nb", "\xff", strings.Repeat("a", 1024), strings.Repeat("/", 20000)} {
		_, err := c.TryLock(within(t), bad)
		if failure := failure(t, err); failure.Certainty != holdline.NotApplied {
			t.Errorf("%.20q: %+v", bad, failure)
		}
	}
	for _, dots := range []string{".", ".."} {
		free(t, take(t, c, dots))
	}
	if _, err := c.TryLock(within(t), prefix, holdline.Reason(strings.Repeat("a", 2000))); failure(t, err).Kind != "invalid" {
		t.Errorf("a long reason: %v", err)
	}
	free(t, take(t, c, prefix, holdline.Reason("\x00\xff\n%ä\"\\")))
}
