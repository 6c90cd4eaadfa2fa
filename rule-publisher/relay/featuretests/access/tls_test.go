package access

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/testkit"
)

// refusal returns the error with which the relay ends a stream.
func refusal(t *testing.T, c harness.Client) error {
	t.Helper()
	select {
	case err := <-c.Failed():
		return err
	case u := <-c.Updates():
		t.Fatalf("was served %s", u.TypeURL)
	case <-time.After(testkit.Patience):
		t.Fatal("not refused")
	}
	return nil
}

// TestCertificateMustBeTheNodes checks that a certificate that the authority signed for another
// service, another cluster, a relay or nobody is refused with PERMISSION_DENIED. The error names
// the presented and the required identity. The refusal is counted.
func TestCertificateMustBeTheNodes(t *testing.T) {
	harness.EachVariantOf(t, func(t *testing.T, open func(*testing.T, *harness.Dialer, *core.Node) harness.Client) {
		r := harness.StartRelay(t, harness.Config(t, "nats://127.0.0.1:1"))
		uris := []string{"spiffe://spillway.local/cluster/north/service/shop", "spiffe://spillway.local/cluster/south/service/gate",
			identitytest.RelayURI("north"), ""}
		for _, uri := range uris {
			c := open(t, harness.At(r).As(harness.Authority, harness.Authority.Issue(uri, time.Hour)), harness.Node("gate", "a"))
			c.Subscribe(resources.ClusterType)
			err := refusal(t, c)
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), uri) ||
				!strings.Contains(err.Error(), `needs "spiffe://spillway.local/cluster/north/service/gate"`) {
				t.Errorf("with %q: %v", uri, err)
			}
		}
		r.Counted("streams_refused_identity", uint64(len(uris)))
		if s := r.Status(); len(s.Envoys) != 0 || s.Counters["streams_opened"] != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

// TestAStreamKeepsItsNode checks that a stream may repeat its node but not change it: not the
// service (even if the certificate is valid for both), not the Envoy, not the cluster.
func TestAStreamKeepsItsNode(t *testing.T) {
	harness.EachVariantOf(t, func(t *testing.T, open func(*testing.T, *harness.Dialer, *core.Node) harness.Client) {
		r := harness.StartRelay(t, harness.Config(t, "nats://127.0.0.1:1"))
		elsewhere := harness.Node("gate", "a")
		elsewhere.Locality.Zone = "south"
		for _, changed := range []*core.Node{harness.Node("gate", "b"), harness.Node("shop", "a"), elsewhere, {}} {
			node := harness.Node("gate", "a")
			c := open(t, harness.At(r), node)
			c.Subscribe(resources.ClusterType)
			harness.Next(t, c)
			c.Subscribe(resources.RouteType, harness.RouteTables...) // the same node again
			harness.Next(t, c)
			node.Id, node.Cluster, node.Locality = changed.GetId(), changed.GetCluster(), changed.GetLocality()
			c.Subscribe(resources.EndpointType, "shop|north")
			if code := status.Code(refusal(t, c)); code != codes.PermissionDenied && code != codes.InvalidArgument {
				t.Errorf("changed to %v: %s", changed, code)
			}
		}
	})
}

// TestHandshakeIsRefused checks that the handshake fails without a certificate, with one of another
// authority, with an expired one, and with an older version of TLS. Each failure is counted.
func TestHandshakeIsRefused(t *testing.T) {
	r := harness.StartRelay(t, harness.Config(t, "nats://127.0.0.1:1"))
	old := harness.Authority.ClientTLS(harness.Authority.Envoy("north", "gate"))
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	uri := identitytest.Identity.Fill("north", "gate")
	for i, test := range []struct {
		name   string
		config *tls.Config
	}{
		{"no certificate", harness.Authority.ClientTLS(identitytest.Pair{})},
		{"another authority", harness.Authority.ClientTLS(identitytest.NewAuthority().Envoy("north", "gate"))},
		{"expired", harness.Authority.ClientTLS(harness.Authority.Issue(uri, -time.Minute))},
		{"a server's certificate", harness.Authority.ClientTLS(harness.Authority.Issue(uri, time.Hour, x509.ExtKeyUsageServerAuth))},
		{"TLS 1.2", old},
	} {
		test.config.NextProtos = []string{"h2"}
		conn, err := tls.Dial("tcp", r.XDSAddr(), test.config)
		if err == nil { // in TLS 1.3 the refusal comes after the client is done
			testkit.Must(t, conn.SetReadDeadline(time.Now().Add(testkit.Patience)))
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}
		if err == nil || os.IsTimeout(err) {
			t.Errorf("%s: %v, want a refusal", test.name, err)
		}
		r.Counted("tls_handshakes_refused", uint64(i+1))
	}
}

// TestCertificatesRotate checks that new files are taken into use while open streams stay open. New
// connections see the new certificate and are verified by the new authorities. Invalid new files
// are counted, and the old ones stay in use.
func TestCertificatesRotate(t *testing.T) {
	conf := harness.Config(t, "nats://127.0.0.1:1")
	r := harness.StartRelay(t, conf)
	before := harness.NewDelta(t, harness.At(r), harness.Node("gate", "a"))
	harness.Boot(t, before)
	testkit.Must(t, os.WriteFile(conf.XDS.Key, []byte("rubbish"), 0o600))
	r.Counted("tls_files_refused", 1)
	harness.Boot(t, harness.NewDelta(t, harness.At(r), harness.Node("gate", "b")))

	renewed := identitytest.NewAuthority()
	pair := renewed.Issue(identitytest.RelayURI("north"), 77*time.Hour, x509.ExtKeyUsageServerAuth)
	folder := conf.XDS.Cert[:strings.LastIndex(conf.XDS.Cert, "/")]
	_, err := renewed.WriteServer(folder, pair)
	testkit.Must(t, err)
	r.Counted("tls_files_taken", 1)
	if left := time.Until(r.Status().Certificate); left < 76*time.Hour || left > 78*time.Hour {
		t.Errorf("the certificate expires in %s, want 77 h", left)
	}
	harness.Boot(t, harness.NewDelta(t, harness.At(r).As(renewed, renewed.Envoy("north", "gate")), harness.Node("gate", "c")))
	config := harness.Authority.ClientTLS(harness.Authority.Envoy("north", "gate"))
	config.InsecureSkipVerify = true // the old client would refuse the relay; here the relay is to refuse it
	conn, err := tls.Dial("tcp", r.XDSAddr(), config)
	if err == nil {
		testkit.Must(t, conn.SetReadDeadline(time.Now().Add(testkit.Patience)))
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if err == nil || os.IsTimeout(err) {
		t.Errorf("the old authority's client: %v, want a refusal", err)
	}
	before.Subscribe(resources.ClusterType)
	if u := harness.Next(t, before); u.TypeURL != resources.ClusterType {
		t.Errorf("the stream from before got %s", u.TypeURL)
	}
	if opened := r.Status().Counters["streams_opened"]; opened != 3 {
		t.Errorf("%d streams were opened, want 3: none came back", opened)
	}
}
