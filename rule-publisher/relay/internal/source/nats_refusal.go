package source

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// Refusal holds the reason why NATS refuses this relay. The zero value is ready and safe for
// concurrent use. An unreachable server is not a refusal.
type Refusal struct{ reason atomic.Pointer[string] }

// Reason returns the reason, or "" while no server refuses the relay.
func (r *Refusal) Reason() string {
	if reason := r.reason.Load(); reason != nil {
		return *reason
	}
	return ""
}

// tried records how an attempt to connect ended. Success, or a failure to reach any server, clears
// the refusal. A connection that was cut off does not, because a server may refuse without an
// answer.
func (r *Refusal) tried(err error) {
	var dial *net.OpError
	if err == nil || errors.As(err, &dial) && dial.Op == "dial" {
		r.reason.Store(nil)
		return
	}
	r.record(err)
}

// record stores an error that NATS returned, if it is a refusal.
func (r *Refusal) record(err error) {
	if refuses(err) {
		reason := err.Error()
		r.reason.Store(&reason)
	}
}

// refuses reports whether the error is a refusal: the server rejected this relay's credential,
// certificate or permission, or the relay rejected the server's certificate. An unreachable server
// is not a refusal.
func refuses(err error) bool {
	for _, refusal := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrPermissionViolation} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	var untrusted *tls.CertificateVerificationError
	var peer *net.OpError // crypto/tls wraps the alert that the peer sent in this type
	if errors.As(err, &untrusted) || errors.As(err, &peer) && peer.Op == "remote error" {
		return true
	}
	// In TLS 1.3 a server refuses a client certificate only after the client's handshake, and a
	// connection reset may arrive before the reason. The NATS client has no error type for that
	// case, so the text is compared. A connection cut off during the handshake is not counted: it
	// may have met a proxy without a server behind it.
	return errors.Is(err, nats.ErrTLS) && strings.Contains(err.Error(), "after TLS handshake")
}
