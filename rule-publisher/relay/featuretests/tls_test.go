package featuretests

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

	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/serve/resources"
)

// refusal returns the error with which the relay ends a stream.
func refusal(t *testing.T, c client) error {
	t.Helper()
	select {
	case err := <-c.failed():
		return err
	case u := <-c.updates():
		t.Fatalf("was served %s", u.typeURL)
	case <-time.After(patience):
		t.Fatal("not refused")
	}
	return nil
}

// TestCertificateMustBeTheNodes checks that a certificate that the authority signed for another
// service, another cluster, a relay or nobody is refused with PERMISSION_DENIED. The error names
// the presented and the required identity. The refusal is counted.
func TestCertificateMustBeTheNodes(t *testing.T) {
	eachVariantOf(t, func(t *testing.T, open func(*testing.T, *dialer, *core.Node) client) {
		r := startRelay(t, testConfig(t, "nats://127.0.0.1:1"))
		uris := []string{"spiffe://spillway.local/cluster/north/service/shop", "spiffe://spillway.local/cluster/south/service/gate",
			identitytest.RelayURI("north"), ""}
		for _, uri := range uris {
			c := open(t, at(r).as(authority, authority.Issue(uri, time.Hour)), node("gate", "a"))
			c.subscribe(resources.ClusterType)
			err := refusal(t, c)
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), uri) ||
				!strings.Contains(err.Error(), `needs "spiffe://spillway.local/cluster/north/service/gate"`) {
				t.Errorf("with %q: %v", uri, err)
			}
		}
		r.counted("streams_refused_identity", uint64(len(uris)))
		if s := r.status(); len(s.Envoys) != 0 || s.Counters["streams_opened"] != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

// TestAStreamKeepsItsNode checks that a stream may repeat its node but not change it: not the
// service (even if the certificate is valid for both), not the Envoy, not the cluster.
func TestAStreamKeepsItsNode(t *testing.T) {
	eachVariantOf(t, func(t *testing.T, open func(*testing.T, *dialer, *core.Node) client) {
		r := startRelay(t, testConfig(t, "nats://127.0.0.1:1"))
		elsewhere := node("gate", "a")
		elsewhere.Locality.Zone = "south"
		for _, changed := range []*core.Node{node("gate", "b"), node("shop", "a"), elsewhere, {}} {
			said := node("gate", "a")
			c := open(t, at(r), said)
			c.subscribe(resources.ClusterType)
			next(t, c)
			c.subscribe(resources.RouteType, routeTables...) // the same node again
			next(t, c)
			said.Id, said.Cluster, said.Locality = changed.GetId(), changed.GetCluster(), changed.GetLocality()
			c.subscribe(resources.EndpointType, "shop|north")
			if code := status.Code(refusal(t, c)); code != codes.PermissionDenied && code != codes.InvalidArgument {
				t.Errorf("changed to %v: %s", changed, code)
			}
		}
	})
}

// TestHandshakeIsRefused checks that the handshake fails without a certificate, with one of another
// authority, with an expired one, and with an older version of TLS. Each failure is counted.
func TestHandshakeIsRefused(t *testing.T) {
	r := startRelay(t, testConfig(t, "nats://127.0.0.1:1"))
	old := authority.ClientTLS(authority.Envoy("north", "gate"))
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	uri := identitytest.Identity.Fill("north", "gate")
	for i, test := range []struct {
		name   string
		config *tls.Config
	}{
		{"no certificate", authority.ClientTLS(identitytest.Pair{})},
		{"another authority", authority.ClientTLS(identitytest.NewAuthority().Envoy("north", "gate"))},
		{"expired", authority.ClientTLS(authority.Issue(uri, -time.Minute))},
		{"a server's certificate", authority.ClientTLS(authority.Issue(uri, time.Hour, x509.ExtKeyUsageServerAuth))},
		{"TLS 1.2", old},
	} {
		test.config.NextProtos = []string{"h2"}
		conn, err := tls.Dial("tcp", r.XDSAddr(), test.config)
		if err == nil { // in TLS 1.3 the refusal comes after the client is done
			must(t, conn.SetReadDeadline(time.Now().Add(patience)))
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}
		if err == nil || os.IsTimeout(err) {
			t.Errorf("%s: %v, want a refusal", test.name, err)
		}
		r.counted("tls_handshakes_refused", uint64(i+1))
	}
}

// TestCertificatesRotate checks that new files are taken into use while open streams stay open. New
// connections see the new certificate and are verified by the new authorities. Invalid new files
// are counted, and the old ones stay in use.
func TestCertificatesRotate(t *testing.T) {
	conf := testConfig(t, "nats://127.0.0.1:1")
	r := startRelay(t, conf)
	before := newDelta(t, at(r), node("gate", "a"))
	boot(t, before)
	must(t, os.WriteFile(conf.XDS.Key, []byte("rubbish"), 0o600))
	r.counted("tls_files_refused", 1)
	boot(t, newDelta(t, at(r), node("gate", "b")))

	renewed := identitytest.NewAuthority()
	pair := renewed.Issue(identitytest.RelayURI("north"), 77*time.Hour, x509.ExtKeyUsageServerAuth)
	folder := conf.XDS.Cert[:strings.LastIndex(conf.XDS.Cert, "/")]
	_, err := renewed.WriteServer(folder, pair)
	must(t, err)
	r.counted("tls_files_taken", 1)
	if left := time.Until(r.status().Certificate); left < 76*time.Hour || left > 78*time.Hour {
		t.Errorf("the certificate expires in %s, want 77 h", left)
	}
	boot(t, newDelta(t, at(r).as(renewed, renewed.Envoy("north", "gate")), node("gate", "c")))
	config := authority.ClientTLS(authority.Envoy("north", "gate"))
	config.InsecureSkipVerify = true // the old client would refuse the relay; here the relay is to refuse it
	conn, err := tls.Dial("tcp", r.XDSAddr(), config)
	if err == nil {
		must(t, conn.SetReadDeadline(time.Now().Add(patience)))
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if err == nil || os.IsTimeout(err) {
		t.Errorf("the old authority's client: %v, want a refusal", err)
	}
	before.subscribe(resources.ClusterType)
	if u := next(t, before); u.typeURL != resources.ClusterType {
		t.Errorf("the stream from before got %s", u.typeURL)
	}
	if opened := r.status().Counters["streams_opened"]; opened != 3 {
		t.Errorf("%d streams were opened, want 3: none came back", opened)
	}
}
