package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"spillway.dev/relay/internal/count"
)

// Files are PEM files.
type Files struct {
	Cert, Key string // of the relay as a server
	ClientCA  string // authorities that an Envoy's certificate must chain to
}

type contents [3][]byte // of cert, key, client CA

// Keeper holds the newest good content of the files. New connections use it; open ones go on.
type Keeper struct {
	files   Files
	config  atomic.Pointer[tls.Config]
	leaf    atomic.Pointer[x509.Certificate]
	loaded  contents // what is in use
	refused contents // what was told of as refused; a certificate may become valid later
	before  contents // what was there at the last look
}

// NewKeeper reads the files; the error names the file and what is wrong with it.
func NewKeeper(files Files) (*Keeper, error) {
	k := &Keeper{files: files}
	content, err := k.read()
	if err != nil {
		return nil, err
	}
	return k, k.use(content)
}

// NotAfter is when the relay's own certificate expires.
func (k *Keeper) NotAfter() time.Time { return k.leaf.Load().NotAfter }

// TLS is the configuration of the server: each handshake uses the newest files.
func (k *Keeper) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return k.config.Load(), nil }}
}

// Watch looks at the files until the context ends. Bad new ones are counted and logged once, and the
// old ones stay.
func (k *Keeper) Watch(ctx context.Context, every time.Duration, counters *count.Counters, log *slog.Logger) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		switch taken, err := k.look(); {
		case err != nil:
			counters.Add(count.TLSFilesRefused)
			log.Error("new TLS files are refused; the old ones stay", "error", err, "not_after", k.NotAfter())
		case taken:
			counters.Add(count.TLSFilesTaken)
			log.Info("new TLS files are in use", "subject", k.leaf.Load().Subject.String(), "not_after", k.NotAfter())
		}
	}
}

// look takes up content that is new and has been the same for two looks: certificate and key are two
// files and are not written at one instant.
func (k *Keeper) look() (taken bool, err error) {
	content, unreadable := k.read()
	still := same(content, k.before)
	k.before = content
	if !still || same(content, k.loaded) {
		return false, nil
	}
	if err = unreadable; err == nil {
		err = k.use(content)
	}
	if err != nil && same(content, k.refused) {
		return false, nil
	}
	if err != nil {
		k.refused = content
	}
	return err == nil, err
}

// read gives an unreadable file as empty content, beside the error.
func (k *Keeper) read() (content contents, err error) {
	for i, path := range []string{k.files.Cert, k.files.Key, k.files.ClientCA} {
		data, problem := os.ReadFile(path)
		content[i], err = data, errors.Join(err, problem)
	}
	return content, err
}

func same(a, b contents) bool {
	return slices.EqualFunc(a[:], b[:], bytes.Equal)
}

func (k *Keeper) use(content contents) error {
	pair, err := tls.X509KeyPair(content[0], content[1])
	if err != nil {
		return fmt.Errorf("%s, %s: %w", k.files.Cert, k.files.Key, err)
	}
	if err := usable(pair.Leaf, time.Now()); err != nil {
		return fmt.Errorf("%s: %w", k.files.Cert, err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(content[2]) {
		return fmt.Errorf("%s: no PEM certificate in it", k.files.ClientCA)
	}
	k.loaded = content
	k.leaf.Store(pair.Leaf)
	k.config.Store(&tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities,
		// A resumed session would be let in by authorities that were in use when it began.
		SessionTicketsDisabled: true,
		// Small first records make a browser's first byte come sooner, and here a call of the kernel each.
		DynamicRecordSizingDisabled: true})
	return nil
}

// usable refuses what every Envoy would refuse.
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
