package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/watch"
)

// Files are the paths of the relay's PEM files.
type Files struct {
	Cert, Key string // the relay's server certificate and key
	ClientCA  string // the authorities that an Envoy's certificate must chain to
}

// Keeper holds the newest valid content of the files. New connections use it; open connections are
// not affected.
type Keeper struct {
	paths  Files
	files  watch.Files
	config atomic.Pointer[tls.Config]
	leaf   atomic.Pointer[x509.Certificate]
}

// NewKeeper reads the files. The error names the file and what is wrong with it.
func NewKeeper(files Files) (*Keeper, error) {
	k := &Keeper{paths: files}
	k.files = watch.Files{Paths: []string{files.Cert, files.Key, files.ClientCA}, Use: k.use}
	return k, k.files.Load()
}

// NotAfter returns when the relay's own certificate expires.
func (k *Keeper) NotAfter() time.Time { return k.leaf.Load().NotAfter }

// TLS returns the configuration of the server. Each handshake uses the newest valid files.
func (k *Keeper) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return k.config.Load(), nil }}
}

// Watch checks the files for changes until the context ends. Invalid new content is counted and
// logged once, and the previous content stays in use.
func (k *Keeper) Watch(ctx context.Context, every time.Duration, counters *count.Counters, log *slog.Logger) {
	k.files.Watch(ctx, every, func(refused error) {
		if refused != nil {
			counters.Add(count.TLSFilesRefused)
			log.Error("new TLS files are refused; the old ones stay", "error", refused, "not_after", k.NotAfter())
			return
		}
		counters.Add(count.TLSFilesTaken)
		log.Info("new TLS files are in use", "subject", k.leaf.Load().Subject.String(), "not_after", k.NotAfter())
	})
}

// use validates the content of certificate, key and authorities, and puts it into use.
func (k *Keeper) use(content [][]byte) error {
	pair, err := tls.X509KeyPair(content[0], content[1])
	if err != nil {
		return fmt.Errorf("%s, %s: %w", k.paths.Cert, k.paths.Key, err)
	}
	if err := usable(pair.Leaf, time.Now()); err != nil {
		return fmt.Errorf("%s: %w", k.paths.Cert, err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(content[2]) {
		return fmt.Errorf("%s: no PEM certificate in it", k.paths.ClientCA)
	}
	k.leaf.Store(pair.Leaf)
	k.config.Store(&tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities,
		// A resumed session would skip the client check: it was verified by the authorities that
		// were in use when it began.
		SessionTicketsDisabled: true,
		// Dynamic record sizing exists so that browsers see their first byte sooner. Here it would
		// only cost one system call for each small record.
		DynamicRecordSizingDisabled: true})
	return nil
}

// usable returns an error for a server certificate that every Envoy would refuse: expired, not yet
// valid, or without the serverAuth usage.
func usable(leaf *x509.Certificate, now time.Time) error {
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("expired at %s", leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("not valid before %s", leaf.NotBefore.Format(time.RFC3339))
	case len(leaf.ExtKeyUsage) > 0 && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) &&
		!slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny):
		return errors.New("its extended key usage lacks serverAuth")
	}
	return nil
}
