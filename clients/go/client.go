// Package holdline takes locks of a Holdline server: leases with fencing tokens, for one machine or
// a fleet.
//
//	client, err := holdline.New("http://127.0.0.1:7654")
//	lock, err := client.Lock(ctx, "nightly-report")
//	if err != nil {
//		return err
//	}
//	defer lock.Unlock(ctx)
//	report(lock.Context(), lock.Token())
//
// The client renews the lease in the background. [Lock.Context] ends when the lease is lost, before
// another client may hold the lock; give it to all work that needs the lock. [Lock.Token] is the
// fencing token, for resources that reject stale writers.
//
// `holdline serve` is the server: on another machine, or beside the program on a Unix socket.
package holdline

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// How long one request may take, beyond the wait that it asks for.
	requestTimeout = 10 * time.Second
	// The longest answer that is read.
	maxAnswer = 1 << 20
)

// Client takes locks of one server. It is safe for concurrent use.
type Client struct {
	base  string
	token func() (string, error)
	http  *http.Client
	about map[string]any
	// How long one request waits: less than longPoll if the server permits less.
	poll atomic.Int64
}

// ClientOption is a setting of a client.
type ClientOption func(*clientSettings)

type clientSettings struct {
	token func() (string, error)
	tls   *tls.Config
}

// WithToken sets the bearer token.
func WithToken(token string) ClientOption {
	return func(s *clientSettings) {
		s.token = func() (string, error) { return token, nil }
	}
}

// WithTokenFile reads the bearer token from a file before each request, so it may change. A lock is
// not asked for while the file has no token.
func WithTokenFile(path string) ClientOption {
	return func(s *clientSettings) {
		s.token = func() (string, error) {
			text, err := os.ReadFile(path)
			return strings.TrimSpace(string(text)), err
		}
	}
}

// WithTLS sets the certificates of https:// URLs: the authorities that are trusted, and the
// client's own certificate. The client speaks HTTP/1.1, whatever protocols it names.
func WithTLS(config *tls.Config) ClientOption {
	return func(s *clientSettings) {
		s.tls = config.Clone()
		s.tls.NextProtos = nil
	}
}

// New makes a client of the server at a URL. It does not connect yet.
//
// The URL is that of other Holdline programs: http://host:port or https://host:port, or
// http+unix://%2Frun%2Fholdline.sock for a socket of this machine. A path such as /stores/billing
// names one of several stores.
func New(address string, options ...ClientOption) (*Client, error) {
	var settings clientSettings
	for _, option := range options {
		option(&settings)
	}
	scheme, rest, _ := strings.Cut(strings.TrimSpace(address), "://")
	host, path, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(rest, "?#@") {
		return nil, invalid("url", "has a password, a parameter or a fragment: use WithToken, WithTokenFile and WithTLS")
	}
	if host == "" {
		return nil, invalid("url", "names no server: write http://host:port, https://host:port or http+unix://%2Fpath")
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     settings.tls,
		TLSHandshakeTimeout: requestTimeout,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     time.Minute,
	}
	dialer := &net.Dialer{Timeout: 3 * time.Second}
	transport.DialContext = dialer.DialContext
	base := scheme + "://" + host
	switch scheme {
	case "http":
		if settings.token != nil && !isHere(host) {
			return nil, invalid("url", "would send the token to another machine in clear text: use https://")
		}
	case "https":
	case "http+unix":
		socket, err := url.PathUnescape(host)
		if err != nil || !strings.HasPrefix(socket, "/") {
			return nil, invalid("url", "names no socket: write http+unix://%2Frun%2Fholdline.sock")
		}
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
		transport.Proxy = nil
		base = "http://localhost"
	default:
		return nil, invalid("url", "must begin with http://, https:// or http+unix://")
	}
	if path = strings.Trim(path, "/"); path != "" {
		base += "/" + path
	}
	if _, err := url.Parse(base); err != nil {
		return nil, invalid("url", "cannot be read: write http://host:port")
	}
	client := &Client{base: base, token: settings.token, about: aboutThisProcess()}
	client.poll.Store(int64(longPoll))
	client.http = &http.Client{
		Transport: transport,
		// A token is never sent to where a server redirects.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return client, nil
}

func isHere(host string) bool {
	name := host
	if without, _, err := net.SplitHostPort(host); err == nil {
		name = without
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return name == "localhost" || (ip != nil && ip.IsLoopback())
}

// What others see of the holder.
func aboutThisProcess() map[string]any {
	about := map[string]any{"pid": os.Getpid()}
	if host, err := os.Hostname(); err == nil {
		about["host"] = host
	}
	if len(os.Args) > 0 {
		about["program"] = os.Args[0][strings.LastIndexAny(os.Args[0], `/\`)+1:]
	}
	if user := os.Getenv("USER"); user != "" {
		about["user"] = user
	}
	return about
}

// Sends one request, and reads its answer, a JSON object, into `answer`. Without an answer the error is of the kind
// "unavailable", and says whether the request may have been carried out.
func (c *Client) call(ctx context.Context, limit time.Duration, method, path, key string, body, answer any) *Error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	token, err := c.readToken()
	if err != nil {
		return err
	}
	err = c.send(ctx, token, method, path, key, body, answer)
	if err != nil && err.Status == http.StatusUnauthorized {
		// The token may have been replaced while the request waited, and the old one ended.
		if next, err := c.readToken(); err == nil && next != token {
			return c.send(ctx, next, method, path, key, body, answer)
		}
	}
	return err
}

func (c *Client) send(ctx context.Context, token, method, path, key string, body, answer any) *Error {
	var reader io.Reader
	if body != nil {
		text, _ := json.Marshal(body)
		reader = bytes.NewReader(text)
	}
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), method, c.base+path, reader)
	if err != nil {
		return invalid("url", "cannot be read: write http://host:port")
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return c.unanswered(errors.Unwrap(err), connected.Load())
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return c.unanswered(err, true)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return problem(response, text)
	}
	if json.Unmarshal(text, answer) != nil {
		return &Error{Kind: "protocol", Certainty: Unknown, Status: response.StatusCode, Detail: "the answer is not that of a Holdline server"}
	}
	return nil
}

// Reads the token, if requests need one. The error never has a part of it.
func (c *Client) readToken() (string, *Error) {
	if c.token == nil {
		return "", nil
	}
	token, err := c.token()
	if err == nil && (token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })) {
		err = errors.New("it is empty, or has other characters than those of a header")
	}
	if err != nil {
		return "", &Error{Kind: "unauthenticated", Certainty: NotApplied, Detail: fmt.Sprintf("the token cannot be read: %v", err)}
	}
	return token, nil
}

// An error without an answer. If there never was a connection, nothing was done. An error of dialing
// alone does not show that: the transport repeats a request by itself if its connection breaks.
func (c *Client) unanswered(err error, connected bool) *Error {
	if errors.Is(err, context.DeadlineExceeded) {
		// Other connections may be as dead as this one: the next request opens a new one.
		c.http.CloseIdleConnections()
	}
	failure := &Error{Kind: "unavailable", Certainty: NotApplied}
	if connected {
		failure.Certainty = Unknown
	}
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		failure.cause = untrusted
		failure.Fix = "trust the authority of the server by WithTLS"
	}
	failure.Detail = fmt.Sprintf("no answer from the server: %v", err)
	return failure
}

func problem(response *http.Response, text []byte) *Error {
	read := &Error{}
	isProblem := strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json")
	if !isProblem || json.Unmarshal(text, read) != nil {
		read = &Error{Kind: "protocol", Certainty: Unknown}
		read.Detail = "status " + response.Status + " is not an answer of a Holdline server"
		if response.StatusCode == 429 || response.StatusCode >= 502 && response.StatusCode <= 504 {
			// A proxy that is overloaded, or does not reach the server.
			read.Kind = "unavailable"
			read.RetryAfter, _ = strconv.ParseInt(response.Header.Get("Retry-After"), 10, 64)
		}
	}
	read.Status = response.StatusCode
	return read
}
