package access

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/relay"
	"spillway.dev/relay/internal/source"
	"spillway.dev/relay/internal/testkit"
)

// startTLSNATS runs a NATS server that accepts only TLS connections with a certificate of the
// authority.
func startTLSNATS(t *testing.T, signer *identitytest.Authority, port int) string {
	t.Helper()
	pair := signer.Issue("", time.Hour)
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	testkit.Must(t, err)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(signer.PEM)
	server := harness.StartNATSWith(t, &natsserver.Options{StoreDir: t.TempDir(), Port: port, TLS: true, TLSVerify: true,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: clients, MinVersion: tls.VersionTLS12,
			ClientAuth: tls.RequireAndVerifyClientCert}})
	return "tls://localhost:" + server.Addr().String()[len("127.0.0.1:"):]
}

// TestNATSOverTLS checks that the relay connects over tls:// with its authority and client
// certificate. It does not use a server of another authority, or one that requires a certificate
// which the relay lacks. It then serves all the same, without being ready.
func TestNATSOverTLS(t *testing.T) {
	folder := t.TempDir()
	pair := harness.Authority.Issue("", time.Hour)
	files := source.NATS{CA: filepath.Join(folder, "ca.crt"), Cert: filepath.Join(folder, "nats.crt"), Key: filepath.Join(folder, "nats.key")}
	for path, content := range map[string][]byte{files.CA: harness.Authority.PEM, files.Cert: pair.Cert, files.Key: pair.Key} {
		testkit.Must(t, os.WriteFile(path, content, 0o600))
	}
	stranger, strangers := identitytest.NewAuthority(), filepath.Join(folder, "strangers.crt")
	testkit.Must(t, os.WriteFile(strangers, stranger.PEM, 0o600))
	ours := startTLSNATS(t, harness.Authority, natsserver.RANDOM_PORT)
	foreign := startTLSNATS(t, stranger, natsserver.RANDOM_PORT)
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
			conf := harness.Config(t, "")
			conf.NATS = test.to
			r := harness.StartRelay(t, conf)
			testkit.Eventually(t, "ready, or refused", func() bool {
				refused := strings.Contains(r.NotReady(r.Started().Add(relay.ColdStart+time.Minute)), "NATS refuses this relay")
				return (r.Answers("/readyz") == 200) == test.connected && refused != test.connected
			})
			if got := r.Status().NatsConnected; got != test.connected {
				t.Errorf("connected: %v, want %v", got, test.connected)
			}
			harness.Boot(t, harness.NewDelta(t, harness.At(r), harness.Node("gate", "a")))
		})
	}
}

// TestNATSThatComesLateAndRefuses checks a server that was away when the relay started, and then
// requires a certificate which the relay lacks. The relay recognises the refusal, although TLS 1.3
// reports it only after the handshake.
func TestNATSThatComesLateAndRefuses(t *testing.T) {
	port, ca := testkit.FreePort(t), filepath.Join(t.TempDir(), "ca.crt")
	testkit.Must(t, os.WriteFile(ca, harness.Authority.PEM, 0o600))
	conf := harness.Config(t, "")
	conf.NATS = source.NATS{URL: "tls://localhost:" + strconv.Itoa(port), CA: ca}
	r := harness.StartRelay(t, conf)
	if refusal := r.Status().NatsRefusal; refusal != "" {
		t.Errorf("a server that is away refuses nobody: %q", refusal)
	}
	startTLSNATS(t, harness.Authority, port)
	testkit.Eventually(t, "the refusal is known", func() bool { return r.Status().NatsRefusal != "" })
}
