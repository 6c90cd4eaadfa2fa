package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/source"
)

// startTLSNATS runs NATS that takes TLS connections only, from holders of the authority's certificates. With TLS 1.2, which
// tells of a missing certificate within the handshake: with 1.3 it comes after it, and a reset may overtake it.
func startTLSNATS(t *testing.T, signer *identitytest.Authority) string {
	t.Helper()
	pair := signer.Issue("", time.Hour)
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	must(t, err)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(signer.PEM)
	server := startNATSWith(t, &natsserver.Options{StoreDir: t.TempDir(), Port: natsserver.RANDOM_PORT, TLS: true, TLSVerify: true,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: clients, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12,
			ClientAuth: tls.RequireAndVerifyClientCert}})
	return "tls://localhost:" + server.Addr().String()[len("127.0.0.1:"):]
}

// Over tls:// the relay connects with its authority and client certificate; a server of another
// authority, or one that wants a certificate which the relay lacks, is not talked to, and the relay
// serves all the same, without being ready.
func TestNATSOverTLS(t *testing.T) {
	folder := t.TempDir()
	pair := authority.Issue("", time.Hour)
	files := source.NATS{CA: filepath.Join(folder, "ca.crt"), Cert: filepath.Join(folder, "nats.crt"), Key: filepath.Join(folder, "nats.key")}
	for path, content := range map[string][]byte{files.CA: authority.PEM, files.Cert: pair.Cert, files.Key: pair.Key} {
		must(t, os.WriteFile(path, content, 0o600))
	}
	stranger, strangers := identitytest.NewAuthority(), filepath.Join(folder, "strangers.crt")
	must(t, os.WriteFile(strangers, stranger.PEM, 0o600))
	ours, foreign := startTLSNATS(t, authority), startTLSNATS(t, stranger)
	for _, test := range []struct {
		name      string
		to        source.NATS
		connected bool
	}{
		{"ours", source.NATS{URL: ours, CA: files.CA, Cert: files.Cert, Key: files.Key}, true},
		{"no client certificate", source.NATS{URL: ours, CA: files.CA}, false},
		{"the machine's roots", source.NATS{URL: ours, CA: source.System, Cert: files.Cert, Key: files.Key}, true},
		{"an authority that the machine does not know", source.NATS{URL: foreign, CA: source.System, Cert: files.Cert, Key: files.Key}, false},
		{"an authority that only the machine knows", source.NATS{URL: ours, CA: strangers, Cert: files.Cert, Key: files.Key}, false},
		{"another authority", source.NATS{URL: foreign, CA: files.CA, Cert: files.Cert, Key: files.Key}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			conf := testConfig(t, "")
			conf.NATS = test.to
			r := startRelay(t, conf)
			eventually(t, "ready, or refused", func() bool {
				refused := strings.Contains(r.notReady(r.started.Add(coldStart+time.Minute)), "NATS refuses this relay")
				return (r.answers("/readyz") == 200) == test.connected && refused != test.connected
			})
			if got := r.status().NatsConnected; got != test.connected {
				t.Errorf("connected: %v, want %v", got, test.connected)
			}
			boot(t, newDelta(t, at(r), node("gate", "a")))
		})
	}
}
