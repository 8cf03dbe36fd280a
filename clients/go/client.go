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
	"net/url"
	"os"
	"strings"
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

// WithTokenFile reads the bearer token from a file before each request, so it may change.
func WithTokenFile(path string) ClientOption {
	return func(s *clientSettings) {
		s.token = func() (string, error) {
			text, err := os.ReadFile(path)
			return strings.TrimSpace(string(text)), err
		}
	}
}

// WithTLS sets the certificates of https:// URLs: the authorities that are trusted, and the
// client's own certificate.
func WithTLS(config *tls.Config) ClientOption {
	return func(s *clientSettings) { s.tls = config.Clone() }
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

// Sends one request, and reads its answer into `answer`. Without an answer the error is of the kind
// "unavailable", and says whether the request may have been carried out.
func (c *Client) call(ctx context.Context, limit time.Duration, method, path, key string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return invalid("body", err.Error())
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, reader)
	if err != nil {
		return invalid("url", "cannot be read: write http://host:port")
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	if c.token != nil {
		token, err := c.token()
		if err != nil {
			return &Error{Kind: "unauthenticated", Certainty: NotApplied, Detail: fmt.Sprintf("the token cannot be read: %v", err)}
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return unanswered(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return unanswered(err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return problem(response, text)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return &Error{Kind: "protocol", Certainty: Unknown, Status: response.StatusCode, Detail: "the answer is not that of a Holdline server"}
	}
	return nil
}

// An error without an answer. Only a connection that was never made shows that nothing was done.
func unanswered(err error) error {
	certainty := Unknown
	var network *net.OpError
	if errors.As(err, &network) && network.Op == "dial" {
		certainty = NotApplied
	}
	detail := err
	var outer *url.Error
	if errors.As(err, &outer) {
		detail = outer.Err
	}
	return &Error{Kind: "unavailable", Certainty: certainty, Detail: fmt.Sprintf("no answer from the server: %v", detail)}
}

func problem(response *http.Response, text []byte) error {
	read := &Error{}
	isProblem := strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json")
	if !isProblem || json.Unmarshal(text, read) != nil {
		read = &Error{Kind: "protocol", Certainty: Unknown}
		read.Detail = "status " + response.Status + " is not an answer of a Holdline server"
		if response.StatusCode >= 502 && response.StatusCode <= 504 {
			// A proxy that does not reach the server.
			read.Kind = "unavailable"
		}
	}
	read.Status = response.StatusCode
	return read
}
