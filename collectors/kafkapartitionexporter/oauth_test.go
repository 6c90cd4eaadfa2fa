package kafkapartitionexporter

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
)

const secret = "s%cret :+&=/ü"

// tokenEndpoint is a server that gives the configured answers, with a client's configuration for
// it. `asked` counts requests.
type tokenEndpoint struct {
	config *SASLConfig
	asked  atomic.Int32
	answer func(http.ResponseWriter, *http.Request)
}

func newTokenEndpoint(t *testing.T, answer func(http.ResponseWriter, *http.Request)) *tokenEndpoint {
	t.Helper()
	e := &tokenEndpoint{answer: answer}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.asked.Add(1)
		e.answer(w, r)
	}))
	server.Config.ErrorLog = nil
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	folder := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	writeFile(t, filepath.Join(folder, "ca.pem"), string(ca))
	writeFile(t, filepath.Join(folder, "secret"), secret+"\n")
	e.config = &SASLConfig{Mechanism: oauthBearer, Username: "west:1", PasswordFile: filepath.Join(folder, "secret")}
	e.config.OAuth.TokenURL, e.config.OAuth.Scope = server.URL+"/token?tenant=1", "kafka produce"
	e.config.OAuth.TLS.CAFile = filepath.Join(folder, "ca.pem")
	return e
}

func writeFile(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (e *tokenEndpoint) mechanism(t *testing.T) sasl.Mechanism {
	t.Helper()
	made, err := e.config.mechanism(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func signIn(mechanism sasl.Mechanism) (string, error) {
	_, shown, err := mechanism.Authenticate(context.Background(), "broker")
	return string(shown), err
}

// gives answers correct requests with numbered tokens of the given life.
func gives(life string) func(http.ResponseWriter, *http.Request) {
	var number atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "west%3A1" || password != "s%25cret+%3A%2B%26%3D%2F%C3%BC" || r.Method != http.MethodPost ||
			r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "kafka produce" ||
			r.URL.RequestURI() != "/token?tenant=1" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token": "token.%d", "token_type": "Bearer"%s}`, number.Add(1), life)
	}
}

// TestATokenIsUsedForMostOfItsLife checks that simultaneous connections share a token, and that the
// next token is requested after usedShare of its life. A token without a stated life is used once.
// A new secret is read from its file.
func TestATokenIsUsedForMostOfItsLife(t *testing.T) {
	endpoint := newTokenEndpoint(t, gives(`, "expires_in": 2`))
	mechanism := endpoint.mechanism(t)
	began := time.Now()
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if shown, err := signIn(mechanism); err != nil || shown != "n,,\x01auth=Bearer token.1\x01\x01" {
				t.Errorf("%q %v", shown, err)
			}
		})
	}
	group.Wait()
	if asked := endpoint.asked.Load(); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	for {
		shown, err := signIn(mechanism)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(shown, "token.2") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if after := time.Since(began); after < 1600*time.Millisecond {
		t.Errorf("another after %s already", after)
	}

	endpoint.answer = gives("")
	endpoint.config.PasswordFile = filepath.Join(t.TempDir(), "none")
	writeFile(t, endpoint.config.PasswordFile, secret)
	mechanism = endpoint.mechanism(t)
	for _, want := range []string{"token.1", "token.2"} {
		if shown, err := signIn(mechanism); err != nil || !strings.Contains(shown, want) {
			t.Errorf("want %s, got %q %v", want, shown, err)
		}
	}
	writeFile(t, endpoint.config.PasswordFile, "another")
	if _, err := signIn(mechanism); err == nil || !strings.Contains(err.Error(), "HTTP 400") {
		t.Errorf("the old secret is shown: %v", err)
	}
}

// TestWithoutATokenTheErrorSaysWhyAndNothingSecret checks that redirects are not followed and
// answers are bounded. Of what the endpoint says, only the codes of RFC 6749 are repeated.
func TestWithoutATokenTheErrorSaysWhyAndNothingSecret(t *testing.T) {
	says := func(status int, body string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		want   string
	}{
		"refused":       {says(401, `{"error": "invalid_client", "error_description": "no `+secret+`"}`), "HTTP 401, invalid_client"},
		"refused by ok": {says(200, `{"error": "invalid_scope"}`), "HTTP 200, invalid_scope"},
		"other words":   {says(400, `{"error": "`+secret+`"}`), "HTTP 400"},
		"no JSON":       {says(200, secret), "no usable answer"},
		"no token":      {says(200, `{}`), "no usable answer"},
		"a broken one":  {says(200, `{"access_token": "a\u0001b `+secret+`"}`), "no usable answer"},
		"a redirect":    {says(307, ""), "HTTP 307"},
		"endless":       {says(200, `{"access_token": "`+strings.Repeat("a", 2<<20)+`"}`), "no usable answer"},
	} {
		endpoint := newTokenEndpoint(t, c.answer)
		_, err := signIn(endpoint.mechanism(t))
		want := "sasl::oauth::token_url: no token from 127.0.0.1: " + c.want
		if err == nil || err.Error() != want || failureReason(fmt.Errorf("of franz-go: %w", err)) != "no_token" {
			t.Errorf("%s: want %q, got: %v", name, want, err)
		}
		if asked := endpoint.asked.Load(); asked != 1 {
			t.Errorf("%s: asked %d times", name, asked)
		}
	}
	endpoint := newTokenEndpoint(t, gives(""))
	endpoint.config.OAuth.TLS.CAFile = ""
	if _, err := signIn(endpoint.mechanism(t)); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("an endpoint of another authority is asked: %v", err)
	}
	endpoint.config.OAuth.TokenURL = "https://127.0.0.1:1/token?key=" + secret
	if _, err := signIn(endpoint.mechanism(t)); err == nil || !strings.Contains(err.Error(), "connection refused") ||
		strings.Contains(err.Error(), secret) {
		t.Errorf("of an endpoint that is away: %v", err)
	}
}

// TestASilentEndpointIsGivenUp checks that callers that waited for a request share its failure, and
// that the next caller asks again.
func TestASilentEndpointIsGivenUp(t *testing.T) {
	over := make(chan struct{})
	endpoint := newTokenEndpoint(t, func(http.ResponseWriter, *http.Request) { <-over })
	t.Cleanup(func() { close(over) })
	asker, err := newTokens(context.Background(), endpoint.config)
	if err != nil {
		t.Fatal(err)
	}
	asker.http.Timeout = time.Second
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			if _, err := asker.auth(context.Background()); err == nil || !strings.Contains(err.Error(), "no answer within") {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if asked := endpoint.asked.Load(); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	endpoint.answer = gives("")
	if _, err := asker.auth(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestATokenIsShownToItsEndWhileThereIsNoOther checks that an absent endpoint ends no connection
// while the last token is still valid.
func TestATokenIsShownToItsEndWhileThereIsNoOther(t *testing.T) {
	endpoint := newTokenEndpoint(t, gives(`, "expires_in": 3600`))
	asker, err := newTokens(context.Background(), endpoint.config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := asker.auth(context.Background()); err != nil {
		t.Fatal(err)
	}
	endpoint.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	asker.until = time.Now()
	if auth, err := asker.auth(context.Background()); err != nil || auth.Token != "token.1" || endpoint.asked.Load() != 2 {
		t.Errorf("%q %v, asked %d times", auth.Token, err, endpoint.asked.Load())
	}
	asker.end = time.Now()
	if _, err := asker.auth(context.Background()); err == nil || !strings.Contains(err.Error(), "HTTP 503") {
		t.Errorf("a token whose life is over is shown: %v", err)
	}
}
