package holdline_test

// Tests against a real server on a real store: HOLDLINE_BIN is the command line with the feature
// `server`, and HOLDLINE_TEST_URL a store that it may fill. The tests of the command line set both.

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
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

// One server for the examples, which have no *testing.T.
func TestMain(m *testing.M) {
	if name := os.Getenv("HOLDLINE_TEST_CHILD"); name != "" {
		beTheChild(name)
		return
	}
	process := exec.Command(os.Getenv("HOLDLINE_BIN"), "serve", "--url", os.Getenv("HOLDLINE_TEST_URL"), "--listen", "127.0.0.1:0")
	s, err := start(process)
	if err != nil {
		fmt.Fprintln(os.Stderr, "HOLDLINE_BIN and HOLDLINE_TEST_URL must be set, as `cargo test -p holdline-cli --all-features --test it -- client_for_go` does:", err)
		os.Exit(1)
	}
	_ = os.Setenv("HOLDLINE_TEST_SERVER", s.url)
	code := m.Run()
	s.kill()
	os.Exit(code)
}

// Longer than any step takes, also on a slow machine.
const patience = 60 * time.Second

type server struct {
	process *exec.Cmd
	url     string
}

// Starts a server, and waits until it has reported its address.
func start(process *exec.Cmd) (*server, error) {
	output, err := process.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	s := &server{process: process}
	lines := bufio.NewScanner(output)
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
		if _, url, found := strings.Cut(lines.Text(), "serves "); found {
			s.url = strings.Fields(url)[0]
			go func() { _, _ = io.Copy(io.Discard, output) }()
			return s, nil
		}
	}
	s.kill()
	return nil, fmt.Errorf("the server does not start: %q", said)
}

func serve(t *testing.T, arguments ...string) *server {
	t.Helper()
	store := []string{"serve", "--url", os.Getenv("HOLDLINE_TEST_URL")}
	s, err := start(exec.Command(os.Getenv("HOLDLINE_BIN"), append(store, arguments...)...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	return s
}

func (s *server) kill() {
	_ = s.process.Process.Signal(syscall.SIGCONT)
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

func (s *server) address() string { return strings.TrimPrefix(s.url, "http://") }

func client(t *testing.T, address string, options ...holdline.ClientOption) *holdline.Client {
	t.Helper()
	client, err := holdline.New(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func name(t *testing.T) string { return fmt.Sprintf("go/%s/%d", t.Name(), time.Now().UnixNano()) }

func take(t *testing.T, c *holdline.Client, name string, options ...holdline.Option) *holdline.Lock {
	t.Helper()
	lock, err := c.Lock(within(t), name, options...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func free(t *testing.T, lock *holdline.Lock) {
	t.Helper()
	if err := lock.Unlock(within(t)); err != nil {
		t.Fatal(err)
	}
}

// Waits until the server reports so many waiters.
func untilQueued(t *testing.T, s *server, name string, waiters int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		response, err := http.Get(s.url + "/v1/locks/" + url.PathEscape(name))
		if err == nil {
			var read struct {
				QueueLength int `json:"queue_length"`
			}
			err = json.NewDecoder(response.Body).Decode(&read)
			_ = response.Body.Close()
			if err == nil && read.QueueLength == waiters {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%d waiters were not reached: %v", waiters, err)
		}
	}
}

func TestALockIsHeldAndReleasedAndItsTokenGrows(t *testing.T) {
	c, lockName := client(t, serve(t, "--listen", "127.0.0.1:0").url), name(t)
	first := take(t, c, lockName, holdline.Reason("a test"))
	if !first.IsHeld() || first.Context().Err() != nil {
		t.Fatal("the lock is not held")
	}
	_, err := c.TryLock(within(t), lockName)
	var busy *holdline.Error
	if !errors.Is(err, holdline.ErrBusy) || !errors.As(err, &busy) {
		t.Fatalf("not busy: %v", err)
	}
	if busy.Holder == nil || busy.Holder.About.Reason != "a test" || busy.Holder.About.PID != os.Getpid() || busy.Holder.FencingToken != first.Token() {
		t.Fatalf("the holder is not named: %+v", busy.Holder)
	}
	free(t, first)
	if first.IsHeld() || !errors.Is(context.Cause(first.Context()), context.Canceled) {
		t.Fatal("the lock is held after its release")
	}
	if err := first.Unlock(within(t)); err != nil {
		t.Fatalf("a second Unlock: %v", err)
	}
	second, err := c.TryLock(within(t), lockName)
	if err != nil {
		t.Fatal(err)
	}
	if second.Token() <= first.Token() {
		t.Fatalf("token %d after %d", second.Token(), first.Token())
	}
	free(t, second)
}

func TestWaitersAreServedInOrder(t *testing.T) {
	s := serve(t, "--listen", "127.0.0.1:0")
	c, lockName := client(t, s.url), name(t)
	holder := take(t, c, lockName)
	var mutex sync.Mutex
	var order []int
	var group sync.WaitGroup
	for number := range 4 {
		group.Go(func() {
			lock, err := c.Lock(within(t), lockName)
			if err != nil {
				t.Error(err)
				return
			}
			mutex.Lock()
			order = append(order, number)
			mutex.Unlock()
			if err := lock.Unlock(within(t)); err != nil {
				t.Error(err)
			}
		})
		untilQueued(t, s, lockName, number+1)
	}
	free(t, holder)
	group.Wait()
	if fmt.Sprint(order) != "[0 1 2 3]" {
		t.Fatalf("served in the order %v", order)
	}
}

func TestAWaitEndsAtItsLimitOrWithItsContextAndLeavesTheQueue(t *testing.T) {
	s := serve(t, "--listen", "127.0.0.1:0")
	c, lockName := client(t, s.url), name(t)
	holder := take(t, c, lockName)
	if _, err := c.Lock(within(t), lockName, holdline.Wait(50*time.Millisecond)); !errors.Is(err, holdline.ErrTimedOut) {
		t.Fatalf("not timed out: %v", err)
	}
	untilQueued(t, s, lockName, 0)
	ctx, cancel := context.WithCancel(within(t))
	ended := make(chan error)
	go func() {
		_, err := c.Lock(ctx, lockName)
		ended <- err
	}()
	untilQueued(t, s, lockName, 1)
	cancel()
	err := <-ended
	var failure *holdline.Error
	if !errors.Is(err, context.Canceled) || !errors.As(err, &failure) || failure.Certainty != holdline.NotApplied {
		t.Fatalf("not cancelled with certainty: %v", err)
	}
	untilQueued(t, s, lockName, 0)
	free(t, holder)
}

func TestReadLocksAndPermitsAreShared(t *testing.T) {
	c, lockName := client(t, serve(t, "--listen", "127.0.0.1:0").url), name(t)
	one, two := take(t, c, lockName, holdline.Shared()), take(t, c, lockName, holdline.Shared())
	if _, err := c.TryLock(within(t), lockName); !errors.Is(err, holdline.ErrBusy) {
		t.Fatalf("a writer beside readers: %v", err)
	}
	free(t, one)
	free(t, two)
	lockName = name(t)
	one, two = take(t, c, lockName, holdline.Permits(2, 3)), take(t, c, lockName, holdline.Permits(1, 3))
	if _, err := c.TryLock(within(t), lockName, holdline.Permits(1, 3)); !errors.Is(err, holdline.ErrBusy) {
		t.Fatalf("a fourth permit of three: %v", err)
	}
	free(t, one)
	free(t, two)
}

func TestALeaseIsRenewedForLongerThanItLasts(t *testing.T) {
	t.Parallel()
	s := serve(t, "--listen", "127.0.0.1:0")
	c, lockName := client(t, s.url), name(t)
	lock := take(t, c, lockName, holdline.Lease(8*time.Second))
	time.Sleep(10 * time.Second)
	if !lock.IsHeld() {
		t.Fatalf("lost: %v", context.Cause(lock.Context()))
	}
	free(t, lock)
}

func TestARevokedLockEndsItsContext(t *testing.T) {
	s := serve(t, "--listen", "127.0.0.1:0")
	c, lockName := client(t, s.url), name(t)
	lock := take(t, c, lockName, holdline.Lease(6*time.Second))
	body := fmt.Sprintf(`{"fencing_token": %d, "reason": "stuck", "force": true}`, lock.Token())
	response, err := http.Post(s.url+"/v1/locks/"+url.PathEscape(lockName)+"/revoke", "application/json", strings.NewReader(body))
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response, err)
	}
	<-lock.Context().Done()
	var lost *holdline.Error
	if cause := context.Cause(lock.Context()); !errors.Is(cause, holdline.ErrLost) || !errors.As(cause, &lost) || lost.Lost != "revoked" {
		t.Fatalf("not revoked: %v", cause)
	}
	if err := lock.Unlock(within(t)); !errors.Is(err, holdline.ErrLost) {
		t.Fatalf("Unlock of a lost lock: %v", err)
	}
}

// A server that stands still renews nothing. The holder must know before another client is granted
// the lock by another server.
func TestALossIsReportedBeforeAnotherClientHolds(t *testing.T) {
	frozen, other := serve(t, "--listen", "127.0.0.1:0"), serve(t, "--listen", "127.0.0.1:0")
	lockName := name(t)
	lock := take(t, client(t, frozen.url), lockName, holdline.Lease(3*time.Second))
	if err := frozen.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next := take(t, client(t, other.url), lockName)
	if lock.IsHeld() || !errors.Is(context.Cause(lock.Context()), holdline.ErrLost) {
		t.Fatalf("two holders: %v", context.Cause(lock.Context()))
	}
	if next.Token() <= lock.Token() {
		t.Fatalf("token %d after %d", next.Token(), lock.Token())
	}
	free(t, next)
}

func TestALockOutlivesARestartOfItsServer(t *testing.T) {
	s := serve(t, "--listen", "127.0.0.1:0")
	c, lockName := client(t, s.url), name(t)
	lock := take(t, c, lockName)
	waiting := make(chan *holdline.Lock)
	go func() {
		next, err := c.Lock(within(t), lockName)
		if err != nil {
			t.Error(err)
		}
		waiting <- next
	}()
	untilQueued(t, s, lockName, 1)
	s.kill()
	again := serve(t, "--listen", s.address())
	untilQueued(t, again, lockName, 1)
	free(t, lock)
	next := <-waiting
	if next == nil || next.Token() <= lock.Token() {
		t.Fatalf("the waiter was not served: %+v", next)
	}
	free(t, next)
}

func TestAnUnlockThatNobodyConfirmsSaysSo(t *testing.T) {
	s := serve(t, "--listen", "127.0.0.1:0")
	lock := take(t, client(t, s.url), name(t))
	s.kill()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := lock.Unlock(ctx); !errors.Is(err, holdline.ErrUnavailable) {
		t.Fatalf("not unavailable: %v", err)
	}
	if lock.IsHeld() {
		t.Fatal("held after Unlock")
	}
}

// The answers to the first grant and to the first release are lost on the way.
func TestALostAnswerNeitherLosesNorRepeatsAGrant(t *testing.T) {
	s := serve(t, "--listen", "127.0.0.1:0")
	target, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	var posts, deletes atomic.Int32
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			first := r.Request.Method == http.MethodPost && posts.Add(1) == 1
			first = first || r.Request.Method == http.MethodDelete && deletes.Add(1) == 1
			if first {
				return errors.New("lost")
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			connection, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = connection.Close()
			}
		},
	}
	proxy := httptest.NewServer(forward)
	defer proxy.Close()
	c, lockName := client(t, proxy.URL), name(t)
	before := take(t, client(t, s.url), lockName)
	free(t, before)
	lock := take(t, c, lockName)
	if posts.Load() < 2 {
		t.Fatal("no answer was lost")
	}
	free(t, lock)
	if deletes.Load() < 2 {
		t.Fatal("no answer was lost")
	}
	after, err := client(t, s.url).TryLock(within(t), lockName)
	if err != nil {
		t.Fatalf("an orphan holds the lock: %v", err)
	}
	free(t, after)
}

func TestASocketOfThisMachine(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "holdline.sock")
	serve(t, "--socket", socket)
	c := client(t, "http+unix://"+strings.ReplaceAll(socket, "/", "%2F"))
	free(t, take(t, c, name(t)))
}

func TestTokensAndCertificates(t *testing.T) {
	directory := t.TempDir()
	write := func(file string, text []byte) string {
		path := filepath.Join(directory, file)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certificate, key := certificate(t)
	token := "0123456789abcdef0123456789abcdef"
	config := fmt.Sprintf(`
[server]
listen = "127.0.0.1:0"
[server.tls]
cert = %q
key = %q
[[server.tokens]]
name = "ci"
sha256 = "%x"
rights = ["lock"]
prefixes = ["go/"]
`, write("cert.pem", certificate), write("key.pem", key), sha256.Sum256([]byte(token)))
	s := serve(t, "--config", write("server.toml", []byte(config)))
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(certificate)
	secure := holdline.WithTLS(&tls.Config{RootCAs: trusted})
	file := write("token", []byte("wrong\n"))
	c := client(t, s.url, secure, holdline.WithTokenFile(file))
	var failure *holdline.Error
	if _, err := c.Lock(within(t), name(t)); !errors.As(err, &failure) || failure.Kind != "unauthenticated" || strings.Contains(err.Error(), "wrong") {
		t.Fatalf("a wrong token: %v", err)
	}
	write("token", []byte(token+"\n"))
	free(t, take(t, c, name(t)))
	if _, err := c.Lock(within(t), "other/name"); !errors.Is(err, holdline.ErrForbidden) {
		t.Fatalf("a name beyond the prefixes: %v", err)
	}
	if _, err := client(t, s.url, holdline.WithToken(token)).TryLock(within(t), name(t)); !errors.Is(err, holdline.ErrUnavailable) {
		t.Fatalf("a server that nobody vouches for: %v", err)
	}
}

func certificate(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

func TestWrongArgumentsNameTheFieldAndAskNobody(t *testing.T) {
	for _, address := range []string{"", "localhost:7654", "ftp://a", "http://", "http://user:secret@a", "http://a?token=secret", "http+unix://run"} {
		_, err := holdline.New(address)
		if !errors.Is(err, holdline.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := holdline.New("http://locks.example", holdline.WithToken("a")); !errors.Is(err, holdline.ErrInvalid) {
		t.Errorf("a token in clear text: %v", err)
	}
	c := client(t, "http://127.0.0.1:1")
	for field, try := range map[string]func() (*holdline.Lock, error){
		"name":  func() (*holdline.Lock, error) { return c.Lock(within(t), "") },
		"lease": func() (*holdline.Lock, error) { return c.Lock(within(t), "a", holdline.Lease(time.Millisecond)) },
		"wait":  func() (*holdline.Lock, error) { return c.TryLock(within(t), "a", holdline.Wait(time.Second)) },
	} {
		_, err := try()
		var failure *holdline.Error
		if !errors.As(err, &failure) || failure.Kind != "invalid" || failure.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err := c.TryLock(within(t), "a")
	var failure *holdline.Error
	if !errors.Is(err, holdline.ErrUnavailable) || !errors.As(err, &failure) || failure.Certainty != holdline.NotApplied {
		t.Errorf("no server: %v", err)
	}
}
