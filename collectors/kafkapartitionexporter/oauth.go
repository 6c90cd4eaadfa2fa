package kafkapartitionexporter

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

const (
	oauthBearer  = "OAUTHBEARER"
	tokenTimeout = 10 * time.Second // for the whole answer
	// usedShare is the part of a token's life after which the next one is requested, as in Kafka's
	// own clients (sasl.login.refresh.window.factor).
	usedShare      = 0.8
	maxHeaderBytes = 64 << 10 // of the answer; the oauth2 package limits its body
)

var (
	// RFC 6750, 2.1
	bearer = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)
	// RFC 6749, 5.2. Other text of an answer is never repeated, because it may contain anything.
	tokenReasons = []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client",
		"unsupported_grant_type", "invalid_scope"}
)

// tokenError says why there is no token. It contains neither the secret nor a token.
type tokenError struct{ host, why string }

func (e *tokenError) Error() string {
	return fmt.Sprintf("sasl::oauth::token_url: no token from %s: %s", e.host, e.why)
}

// tokens keeps an access token for most of its life, and until its end when no other can be had. A
// token without a stated life is used once.
type tokens struct {
	config *SASLConfig
	http   *http.Client

	mu       sync.Mutex // held while one caller asks; the others share its answer
	now      string
	until    time.Time // when the next token is requested
	end      time.Time // the end of its life
	failure  error
	failedAt time.Time
}

func newTokens(ctx context.Context, c *SASLConfig) (*tokens, error) {
	secured, err := c.OAuth.TLS.LoadTLSConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("sasl::oauth::tls: %w", err)
	}
	return &tokens{config: c, http: &http.Client{
		Timeout: tokenTimeout,
		Transport: &http.Transport{
			TLSClientConfig: secured, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaderBytes,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (t *tokens) auth(ctx context.Context) (oauth.Auth, error) {
	wanted := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	began := time.Now()
	if began.Before(t.until) {
		return oauth.Auth{Token: t.now}, nil
	}
	if wanted.Before(t.failedAt) { // this caller waited for the request that failed
		return t.stillHeld()
	}
	token, err := t.ask(ctx)
	if err != nil {
		t.failure, t.failedAt = err, time.Now()
		return t.stillHeld()
	}
	t.now, t.until, t.end, t.failedAt = token.AccessToken, began, token.Expiry, time.Time{}
	if !token.Expiry.IsZero() {
		t.until = began.Add(time.Duration(usedShare * float64(token.Expiry.Sub(began))))
	}
	return oauth.Auth{Token: t.now}, nil
}

// stillHeld returns the last token while it is valid, and otherwise the error why there is no
// other.
func (t *tokens) stillHeld() (oauth.Auth, error) {
	if time.Now().Before(t.end) {
		return oauth.Auth{Token: t.now}, nil
	}
	return oauth.Auth{}, t.failure
}

func (t *tokens) ask(ctx context.Context) (*oauth2.Token, error) {
	user, secret, err := t.config.credentials()
	if err != nil {
		return nil, err
	}
	grant := clientcredentials.Config{
		ClientID: user, ClientSecret: secret, TokenURL: t.config.OAuth.TokenURL, AuthStyle: oauth2.AuthStyleInHeader,
	}
	if t.config.OAuth.Scope != "" {
		grant.Scopes = []string{t.config.OAuth.Scope}
	}
	token, err := grant.Token(context.WithValue(ctx, oauth2.HTTPClient, t.http))
	if err == nil && bearer.MatchString(token.AccessToken) {
		return token, nil
	}
	endpoint, _ := url.Parse(t.config.OAuth.TokenURL)
	return nil, &tokenError{endpoint.Hostname(), reason(err)}
}

// reason returns why there is no token. It quotes nothing of an answer except the codes of RFC
// 6749.
func reason(err error) string {
	var refused *oauth2.RetrieveError
	var sent *url.Error
	var network *net.OpError
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &refused) && slices.Contains(tokenReasons, refused.ErrorCode):
		return fmt.Sprintf("HTTP %d, %s", refused.Response.StatusCode, refused.ErrorCode)
	case errors.As(err, &refused):
		return fmt.Sprintf("HTTP %d", refused.Response.StatusCode)
	case errors.As(err, &sent) && sent.Timeout():
		return fmt.Sprintf("no answer within %s", tokenTimeout)
	case errors.As(err, &network):
		return network.Error()
	case errors.As(err, &untrusted):
		return untrusted.Error()
	}
	return "no usable answer"
}
