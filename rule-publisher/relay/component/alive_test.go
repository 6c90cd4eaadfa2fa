package component

import (
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3" // by its name in JSON
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/testkit"
)

// behindToxiproxy returns the address of a proxy that accepts connections for the region, whether
// or not the region is alive.
func behindToxiproxy(t *testing.T, region string) (address string) {
	t.Helper()
	_, port, err := net.SplitHostPort(testkit.FreeAddress(t))
	must(t, err)
	testkit.Start(t, programs+"/toxiproxy-server", "-host", "127.0.0.1", "-port", port)
	address = testkit.FreeAddress(t)
	described := fmt.Sprintf(`{"name": "south", "listen": %q, "upstream": %q, "enabled": true}`, address, region)
	eventually(t, "Toxiproxy", func() bool {
		response, err := http.Post("http://127.0.0.1:"+port+"/proxies", "application/json", strings.NewReader(described))
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusCreated
	})
	return address
}

// TestADeadRegionBehindAProxyIsLeft kills a region behind a proxy that accepts connections and
// closes them. A few requests are lost at first, and none once the region has been found dead.
// Without checks, three requests were lost after each ejection, for as long as the region was dead.
func TestADeadRegionBehindAProxyIsLeft(t *testing.T) {
	t.Parallel()
	region := calleeOf(t, backend(t, "south"), "")
	p := callerOf(t, backend(t, "north"), behindToxiproxy(t, region.Listener("inbound")), backend(t, "far"))
	eventually(t, "a check at the interval of what is used", func() bool {
		calls := repeat(p, 10, "POST", "/items")
		return calls.answered["south"] == 10 && p.Stat("cluster.shop|south.health_check.success") > 1
	})
	region.Post("/quitquitquit")
	begin, lost := time.Now(), 0
	eventually(t, "the region is found dead", func() bool {
		lost += repeat(p, 5, "POST", "/items").lost
		return p.Stat("cluster.shop|south.health_check.healthy") == 0
	})
	found := time.Since(begin)
	calls := repeatFor(p, 12*time.Second) // an ejection ends within that time
	t.Logf("%d calls were lost until it was found dead after %s; then %s", lost, found.Round(time.Millisecond), calls)
	if calls.lost > 0 || calls.answered["south"] > 0 {
		t.Errorf("afterwards: %v, want none lost", calls)
	}
}

// TestACallerStartsWhileARegionIsDead checks that a caller that starts while a region is dead knows
// so before its first request.
func TestACallerStartsWhileARegionIsDead(t *testing.T) {
	for name, dead := range map[string]string{"closed": dropping(t, false), "reset": dropping(t, true), "silent": blackHole(t)} {
		t.Run(name, func(t *testing.T) {
			p := callerOf(t, backend(t, "north"), dead, backend(t, "far"))
			if calls := repeat(p, 50, "POST", "/items"); calls.lost > 0 || calls.answered["north"] != 50 {
				t.Errorf("%v, want all from north", calls)
			}
		})
	}
}

// region is a server that answers or, when dead, accepts connections and closes them. It counts the
// requests for the path of health checks.
type region struct {
	dead, deafToChecks atomic.Bool
	checks             atomic.Int32
}

func (r *region) at(t *testing.T, name string, status int) (address string) {
	t.Helper()
	_, port := testkit.BackendOf(t, 0, func(w http.ResponseWriter, request *http.Request) {
		check := request.URL.Path == names.XdsAlivePath
		if check {
			r.checks.Add(1)
		}
		if r.dead.Load() || check && r.deafToChecks.Load() {
			panic(http.ErrAbortHandler)
		}
		if check {
			w.WriteHeader(status)
		}
		io.WriteString(w, name) //nolint:errcheck // the asker is gone
	})
	return local(port)
}

// TestARegionThatComesBackIsUsedAgain checks that a region is used again when it answers again.
func TestARegionThatComesBackIsUsedAgain(t *testing.T) {
	t.Parallel()
	var south region
	p := callerOf(t, backend(t, "north"), south.at(t, "south", http.StatusOK), backend(t, "far"))
	healthy := func() int { return p.Stat("cluster.shop|south.health_check.healthy") }
	repeat(p, 10, "POST", "/items")
	south.dead.Store(true)
	eventually(t, "south is found dead", func() bool { repeat(p, 10, "POST", "/items"); return healthy() == 0 })
	south.dead.Store(false)
	eventually(t, "south is used again", func() bool { return repeat(p, 1, "POST", "/items").answered["south"] == 1 })
}

// TestADestinationThatDoesNotKnowChecksIsAlive checks that a destination that does not know the
// checked path, such as an application behind an Envoy of the previous version, counts as alive,
// whatever it answers.
func TestADestinationThatDoesNotKnowChecksIsAlive(t *testing.T) {
	for _, status := range []int{http.StatusFound, http.StatusNotFound, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var south region
			p := callerOf(t, backend(t, "north"), south.at(t, "south", status), backend(t, "far"))
			if calls := repeat(p, 50, "POST", "/items"); calls.answered["south"] != 50 {
				t.Errorf("%v, want all from south", calls)
			}
			if south.checks.Load() == 0 || p.Stat("cluster.shop|south.health_check.failure") != 0 {
				t.Errorf("%d checks, %d failed", south.checks.Load(), p.Stat("cluster.shop|south.health_check.failure"))
			}
		})
	}
}

// TestEndpointsThatSpeakOnlyHTTP2 checks endpoints that speak only HTTP/2, such as a gRPC gateway.
// They are alive where the topology declares HTTP/2 checks, and where they are not checked. Checked
// by HTTP/1.1 they look dead.
func TestEndpointsThatSpeakOnlyHTTP2(t *testing.T) {
	for how, want := range map[string]string{"http1": "north", "http2": "south", "off": "south"} {
		t.Run(how, func(t *testing.T) {
			topology := threeClusters()
			topology.Services = []*spillwayv1.Service{{Name: "shop", Check: how}}
			p := callerIn(t, topology, http2Only(t, "north"), http2Only(t, "south"), http2Only(t, "far"))
			client := &http.Client{Transport: &http.Transport{Protocols: http2()}}
			defer client.CloseIdleConnections()
			request, err := http.NewRequest("POST", "http://"+p.Listener("outbound")+"/items", nil)
			must(t, err)
			request.Host = "shop"
			response, err := client.Do(request)
			must(t, err)
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			must(t, err)
			if string(body) != want {
				t.Errorf("answered by %q, want %q", body, want)
			}
		})
	}
}

func http2Only(t *testing.T, name string) (address string) {
	t.Helper()
	listener := listen(t)
	server := &http.Server{Protocols: http2(), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, name) //nolint:errcheck // the asker is gone
	})}
	go server.Serve(listener) //nolint:errcheck // closed by the test
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String()
}

func http2() *http.Protocols {
	only := &http.Protocols{}
	only.SetUnencryptedHTTP2(true)
	return only
}

// TestADestinationThatMovesLosesNoRequest checks that a destination whose addresses all change at
// once loses no request. Until the first check of the new address, the next cluster answers. Where
// there is no other cluster, the new address answers.
func TestADestinationThatMovesLosesNoRequest(t *testing.T) {
	for _, elsewhere := range []bool{true, false} {
		t.Run(fmt.Sprintf("another cluster: %t", elsewhere), func(t *testing.T) {
			north, before := "", backend(t, "before")
			if elsewhere {
				north = backend(t, "north")
			}
			file := filepath.Join(t.TempDir(), "south.json")
			var from *endpoint.ClusterLoadAssignment
			p := callerIn(t, threeClusters(), north, before, "", func(c *cluster.Cluster) {
				if c.Name != "shop|south" {
					return
				}
				from, c.LoadAssignment = c.LoadAssignment, nil
				write(t, file, from)
				c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_EDS}
				c.EdsClusterConfig = &cluster.Cluster_EdsClusterConfig{EdsConfig: &core.ConfigSource{
					ResourceApiVersion: core.ApiVersion_V3, ConfigSourceSpecifier: &core.ConfigSource_PathConfigSource{
						PathConfigSource: &core.PathConfigSource{Path: file}}}}
			})
			if calls := repeat(p, 10, "POST", "/items"); calls.answered["before"] != 10 {
				t.Fatalf("%v, want all from before", calls)
			}
			_, to := testkit.BackendOf(t, 0, func(w http.ResponseWriter, request *http.Request) {
				if request.URL.Path == names.XdsAlivePath {
					time.Sleep(time.Second)
				}
				io.WriteString(w, "after") //nolint:errcheck // the asker is gone
			})
			from.Endpoints[0].LbEndpoints[0].GetEndpoint().GetAddress().GetSocketAddress().PortSpecifier =
				&core.SocketAddress_PortValue{PortValue: uint32(to)}
			write(t, file, from)
			moving := repeat(p, 0, "POST", "/items")
			eventually(t, "south is used again", func() bool {
				calls := repeat(p, 10, "POST", "/items")
				moving.lost += calls.lost
				for name, n := range calls.answered {
					moving.answered[name] += n
				}
				return calls.answered["after"] == 10 && p.Stat("cluster.shop|south.health_check.success") > 1
			})
			t.Log(moving)
			if moving.lost > 0 || moving.answered["north"] > 0 != elsewhere {
				t.Errorf("%v, want none lost", moving)
			}
		})
	}
}

// write writes the assignment to the file that an Envoy watches. Envoy notices only files that are
// moved into place.
func write(t *testing.T, file string, assignment *endpoint.ClusterLoadAssignment) {
	t.Helper()
	resource, err := anypb.New(assignment)
	must(t, err)
	must(t, os.WriteFile(file+".new", []byte(asJSON(t, &discovery.DiscoveryResponse{Resources: []*anypb.Any{resource}})), 0o600))
	must(t, os.Rename(file+".new", file))
}

// TestAWrongCheckRefusesNobody checks that a failing check does not lose requests. Where there is
// no other destination, requests go to the one that looks dead.
func TestAWrongCheckRefusesNobody(t *testing.T) {
	var south, far region
	south.deafToChecks.Store(true)
	far.deafToChecks.Store(true)
	p := callerOf(t, "", south.at(t, "south", http.StatusOK), far.at(t, "far", http.StatusOK))
	if calls := repeat(p, 50, "POST", "/items"); calls.lost > 0 {
		t.Errorf("both look dead: %v", calls)
	}
	alone := callerOf(t, "", south.at(t, "south", http.StatusOK), "")
	if calls := repeat(alone, 50, "POST", "/items"); calls.lost > 0 || calls.answered["south"] != 50 {
		t.Errorf("nobody else: %v, want all from south", calls)
	}
}

// TestChecksDoNotReachApplications checks that the callee's Envoy answers checks itself. Endpoints
// of the own cluster, and those that others fail over to, are not checked.
func TestChecksDoNotReachApplications(t *testing.T) {
	var north, south, far region
	p := callerOf(t, north.at(t, "north", http.StatusOK), callee(t, south.at(t, "south", http.StatusOK)), far.at(t, "far", http.StatusOK))
	repeat(p, 10, "POST", "/items")
	for cluster, want := range map[string]bool{"north": false, "south": true, "far": true} {
		if got := p.Stat("cluster.shop|" + cluster + ".health_check.success"); got > 0 != want {
			t.Errorf("%s: %d checks succeeded", cluster, got)
		}
	}
	if n, s, f := north.checks.Load(), south.checks.Load(), far.checks.Load(); n != 0 || s != 0 || f == 0 {
		t.Errorf("applications saw %d, %d, %d checks, want some only at far, which has no proxy", n, s, f)
	}
}

// TestACheckEndsNoEjection checks that an endpoint whose proxy answers checks but does not reach
// its application stays ejected. A successful check does not end an ejection that failed requests
// caused.
func TestACheckEndsNoEjection(t *testing.T) {
	p := callerIn(t, threeClusters(), backend(t, "north"), callee(t, refusing(t)), backend(t, "far"), func(c *cluster.Cluster) {
		c.OutlierDetection.BaseEjectionTime, c.OutlierDetection.MaxEjectionTime = durationpb.New(time.Hour), durationpb.New(time.Hour)
		for _, check := range c.HealthChecks {
			check.Interval = durationpb.New(100 * time.Millisecond)
			check.NoTrafficInterval = check.Interval
		}
	})
	stat := func(name string) int { return p.Stat("cluster.shop|south." + name) }
	if calls := repeat(p, 20, "POST", "/items"); calls.lost > 0 {
		t.Errorf("%v, want none lost", calls)
	}
	succeeded := stat("health_check.success")
	eventually(t, "three checks after the ejection", func() bool { return stat("health_check.success") > succeeded+3 })
	if stat("outlier_detection.ejections_active") != 1 {
		t.Error("the endpoint is not ejected any more")
	}
}

// TestChecksSpeakMutualTLS checks that checks use mutual TLS where proxies do, as in a mesh, by the
// transport socket of the cluster. A destination that refuses the caller's certificate looks dead.
func TestChecksSpeakMutualTLS(t *testing.T) {
	authority, stranger := identitytest.NewAuthority(), identitytest.NewAuthority()
	socket := func(of *identitytest.Authority, kind, more string) string {
		pair := of.Issue("spiffe://mesh/shop", time.Hour, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
		return fmt.Sprintf(`{"name": "tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.%s",
			%s "common_tls_context": {"tls_certificates": [{"certificate_chain": {"inline_string": %q}, "private_key": {"inline_string": %q}}],
			"validation_context": {"trusted_ca": {"inline_string": %q}}}}}`, kind, more, pair.Cert, pair.Key, authority.PEM)
	}
	oneLine := strings.NewReplacer("\n", " ", "\t", "")
	region := func(name string) string {
		socket := socket(authority, "DownstreamTlsContext", `"require_client_certificate": true,`)
		return calleeOf(t, backend(t, name), oneLine.Replace(socket)).Listener("inbound")
	}
	north, south, far := region("north"), region("south"), region("far")
	for name, of := range map[string]*identitytest.Authority{"known": authority, "unknown": stranger} {
		t.Run(name, func(t *testing.T) {
			p := callerIn(t, threeClusters(), north, south, far, func(c *cluster.Cluster) {
				c.TransportSocket = &core.TransportSocket{}
				must(t, protojson.Unmarshal([]byte(socket(of, "UpstreamTlsContext", "")), c.TransportSocket))
			})
			if healthy := p.Stat("cluster.shop|south.health_check.healthy"); healthy == 1 != (of == authority) {
				t.Errorf("%d endpoints are healthy", healthy)
			}
			if calls := repeat(p, 20, "GET", "/items/7"); of == authority && calls.answered["south"] != 20 {
				t.Errorf("%v, want all from south", calls)
			}
		})
	}
}

// repeatFor sends POST requests for a time, at most 100 per second.
func repeatFor(p *testkit.Envoy, d time.Duration) (all outcome) {
	all.answered = map[string]int{}
	for begin := time.Now(); time.Since(begin) < d; time.Sleep(8 * time.Millisecond) {
		single := repeat(p, 1, "POST", "/items")
		all.lost += single.lost
		if single.lost > 0 {
			all.lastLost = time.Since(begin)
		}
		for name, n := range single.answered {
			all.answered[name] += n
		}
		all.took, all.slowest = time.Since(begin), max(all.slowest, single.slowest)
	}
	return all
}
