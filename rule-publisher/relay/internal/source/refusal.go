package source

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// Refusal holds why NATS refuses this relay; the zero value is ready and safe for concurrent use. A server
// that is away refuses nobody.
type Refusal struct{ reason atomic.Pointer[string] }

// Reason is "" while nothing is refused.
func (r *Refusal) Reason() string {
	if reason := r.reason.Load(); reason != nil {
		return *reason
	}
	return ""
}

// tried says how an attempt to connect ended. One that reached nobody ends a refusal; one that was cut off does not: a
// server may refuse without a word.
func (r *Refusal) tried(err error) {
	var dial *net.OpError
	if err == nil || errors.As(err, &dial) && dial.Op == "dial" {
		r.reason.Store(nil)
		return
	}
	r.heard(err)
}

// heard says what NATS answered.
func (r *Refusal) heard(err error) {
	if refuses(err) {
		reason := err.Error()
		r.reason.Store(&reason)
	}
}

// refuses reports whether a server answered and refused: this relay's credential, certificate or right, or the relay the
// server's certificate. A server that is away does not.
func refuses(err error) bool {
	for _, refusal := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrPermissionViolation} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	var untrusted *tls.CertificateVerificationError
	var peer *net.OpError // of crypto/tls: the alert that the peer sent
	if errors.As(err, &untrusted) || errors.As(err, &peer) && peer.Op == "remote error" {
		return true
	}
	// TLS 1.3 refuses a certificate after the client's handshake, where a reset may overtake the reason. The client has no
	// error of its own for that. One that is cut off within the handshake may have met a proxy without a server.
	return errors.Is(err, nats.ErrTLS) && strings.Contains(err.Error(), "after TLS handshake")
}
