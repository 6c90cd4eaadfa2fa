package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
)

// realEnvoy is a running Envoy that takes everything from the relay.
type realEnvoy struct {
	t         *testing.T
	admin     string
	listeners map[string]string // name -> address
}

// envoyProgram from SPILLWAY_ENVOY. `make test` sets it; without it only these tests are skipped.
func envoyProgram(t *testing.T) string {
	t.Helper()
	program := os.Getenv("SPILLWAY_ENVOY")
	if program == "" {
		t.Skip("SPILLWAY_ENVOY: not set; must be the path of an Envoy program for the tests with a real Envoy")
	}
	return program
}

// startEnvoy with the ADS variant, DELTA_GRPC or GRPC, until it serves.
func startEnvoy(t *testing.T, variant string, relayPort, appPort int) *realEnvoy {
	t.Helper()
	e := startEnvoyUnready(t, variant, relayPort, appPort)
	eventually(t, "Envoy is live", func() bool { return e.get("/ready") == "LIVE\n" })
	e.readListeners()
	return e
}

// startEnvoyUnready until its admin page is there.
func startEnvoyUnready(t *testing.T, variant string, relayPort, appPort int) *realEnvoy {
	t.Helper()
	program, folder := envoyProgram(t), t.TempDir()
	template, err := os.ReadFile("testdata/bootstrap.yaml")
	must(t, err)
	bootstrap := strings.NewReplacer("RELAY_PORT", strconv.Itoa(relayPort), "APP_PORT", strconv.Itoa(appPort),
		"API_TYPE", variant, "FOLDER", folder).Replace(string(template))
	pair := authority.Envoy("north", "gate")
	for name, content := range map[string][]byte{"envoy.crt": pair.Cert, "envoy.key": pair.Key, "ca.crt": authority.PEM} {
		must(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	path := filepath.Join(folder, "bootstrap.yaml")
	must(t, os.WriteFile(path, []byte(bootstrap), 0o600))
	adminPath := filepath.Join(folder, "admin")
	command := exec.Command(program, "-c", path, "--admin-address-path", adminPath, "--use-dynamic-base-id",
		"--concurrency", "1", "-l", "warning", "--drain-time-s", "1")
	logFile, err := os.Create(filepath.Join(folder, "log"))
	must(t, err)
	command.Stdout, command.Stderr = logFile, logFile
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, command.Start())
	t.Cleanup(func() {
		command.Process.Kill() //nolint:errcheck // it may have ended
		command.Wait()         //nolint:errcheck // killed
		if t.Failed() {
			log, _ := os.ReadFile(logFile.Name())
			t.Logf("Envoy's log:\n%s", log)
		}
	})
	e := &realEnvoy{t: t, listeners: map[string]string{}}
	eventually(t, "Envoy's admin page", func() bool {
		admin, err := os.ReadFile(adminPath)
		if err != nil || len(admin) == 0 {
			return false
		}
		e.admin = "http://" + string(admin)
		return e.get("/ready") != ""
	})
	return e
}

func (e *realEnvoy) readListeners() {
	e.t.Helper()
	var page struct {
		Statuses []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Port int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	must(e.t, json.Unmarshal([]byte(e.get("/listeners?format=json")), &page))
	for _, s := range page.Statuses {
		e.listeners[s.Name] = fmt.Sprintf("127.0.0.1:%d", s.Local.Socket.Port)
	}
}

// stat is the value of one of Envoy's counters or gauges; -1 when it has none of the name.
func (e *realEnvoy) stat(name string) int {
	_, text, found := strings.Cut("\n"+e.get("/stats"), "\n"+name+": ")
	line, _, _ := strings.Cut(text, "\n")
	if value, err := strconv.Atoi(line); found && err == nil {
		return value
	}
	return -1
}

func (e *realEnvoy) get(path string) string {
	response, err := http.Get(e.admin + path)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// call through a listener; the body is the name of the backend that answered.
func (e *realEnvoy) call(listener, host, method, path string) (status int, body string) {
	e.t.Helper()
	request, err := http.NewRequest(method, "http://"+e.listeners[listener]+path, nil)
	must(e.t, err)
	request.Host = host
	response, err := http.DefaultClient.Do(request)
	must(e.t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	must(e.t, err)
	return response.StatusCode, string(content)
}

// shares of the backends in n calls; each must succeed.
func (e *realEnvoy) shares(n int, host, path string) map[string]int {
	e.t.Helper()
	shares := map[string]int{}
	for range n {
		status, body := e.call("outbound", host, "GET", path)
		if status != 200 {
			e.t.Fatalf("status %d %s", status, body)
		}
		shares[body]++
	}
	return shares
}

// backend answers with its name; port 0: any.
func backend(t *testing.T, name string, port int) (*http.Server, int) {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/overloaded" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		io.WriteString(w, name) //nolint:errcheck // the asker is gone
	})}
	go server.Serve(listener) //nolint:errcheck // closed by the test
	t.Cleanup(func() { server.Close() })
	return server, listener.Addr().(*net.TCPAddr).Port
}

// writeEndpoints of shop in three clusters.
func writeEndpoints(t *testing.T, conf config, north, south, far int) {
	t.Helper()
	must(t, os.WriteFile(conf.Endpoints, fmt.Appendf(nil, `
cluster: north
services:
  - {service: shop, cluster: north, addresses: ["127.0.0.1:%d"]}
  - {service: shop, cluster: south, addresses: ["127.0.0.1:%d"]}
  - {service: shop, cluster: far, addresses: ["127.0.0.1:%d"]}
`, north, south, far), 0o600))
}

// A real Envoy starts with NATS absent, takes a ruleset's weights and the next one's, acknowledges
// both, and keeps its routes when the relay is gone.
func TestRealEnvoyFollowsRulesets(t *testing.T) {
	for _, variant := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(variant, func(t *testing.T) {
			envoyProgram(t)
			_, north := backend(t, "north", 0)
			_, south := backend(t, "south", 0)
			_, far := backend(t, "far", 0)
			server := startNATS(t, t.TempDir(), 0)
			p := newPublisher(t, server)
			conf := testConfig(t, server.ClientURL())
			writeEndpoints(t, conf, north, south, far)
			r := startRelay(t, conf)
			e := startEnvoy(t, variant, portOf(t, r.listener.Addr().String()), north)
			if got := e.shares(20, "shop", "/items/7"); got["north"] != 20 {
				t.Errorf("local-first went to %v", got)
			}
			p.put(ruleset(11, time.Minute, 0, 10000))
			eventually(t, "version 11 is in the config dump", func() bool { return e.routesSay(`"ruleset_version": 11`) })
			if got := e.shares(20, "shop:8080", "/items/7?q=1"); got["south"] != 20 {
				t.Errorf("version 11 went to %v", got)
			}
			if got := e.shares(20, "shop", "/other/path"); got["north"] != 20 {
				t.Errorf("the catch-all went to %v", got)
			}
			p.put(ruleset(12, time.Minute, 2500, 5000, 2500))
			p.ack(func(a *spillwayv1.Acknowledgement) bool {
				return a.GetRulesetVersion() == 12 && a.GetOutcome() == spillwayv1.Outcome_OUTCOME_ACK && a.GetEnvoy() == "north/gate/test"
			})
			if !e.routesSay(`"weight": 2500`) || !e.routesSay(`"input_window": "w12"`) {
				t.Error("version 12 is not in the config dump")
			}
			r.stop()
			if got := e.shares(400, "shop", "/items/7"); got["north"] < 50 || got["south"] < 130 || got["far"] < 50 {
				t.Errorf("without a relay, weights 2500, 5000, 2500 gave %v", got)
			}
			if nacks := r.counters.Get(count.AnswersRefused); nacks != 0 {
				t.Errorf("Envoy refused %d answers", nacks)
			}
		})
	}
}

// routesSay tells whether the config dump of routes contains the text.
func (e *realEnvoy) routesSay(text string) bool {
	return strings.Contains(e.get("/config_dump?resource=dynamic_route_configs"), text)
}

// When a destination dies, no request fails: it goes to the next cluster by round-trip time, and
// back when the destination is alive again. Refusals (503) move nothing.
func TestRealEnvoyFailsOver(t *testing.T) {
	envoyProgram(t)
	_, north := backend(t, "north", 0)
	southServer, south := backend(t, "south", 0)
	_, far := backend(t, "far", 0)
	server := startNATS(t, t.TempDir(), 0)
	p := newPublisher(t, server)
	conf := testConfig(t, server.ClientURL())
	writeEndpoints(t, conf, north, south, far)
	r := startRelay(t, conf)
	e := startEnvoy(t, "DELTA_GRPC", portOf(t, r.listener.Addr().String()), north)
	p.put(ruleset(1, time.Minute, 0, 10000))
	eventually(t, "version 1 is in the config dump", func() bool { return e.routesSay(`"ruleset_version": 1`) })
	if got := e.shares(20, "shop", "/items/7"); got["south"] != 20 {
		t.Fatalf("went to %v", got)
	}
	for range 20 {
		e.call("outbound", "shop", "GET", "/overloaded")
	}
	if got := e.shares(20, "shop", "/items/7"); got["south"] != 20 {
		t.Errorf("after refusals went to %v", got)
	}
	must(t, southServer.Close())
	if got := e.shares(100, "shop", "/items/7"); got["north"] != 100 {
		t.Errorf("with south dead went to %v, want north, the nearest other", got)
	}
	backend(t, "south", south)
	eventually(t, "south is used again", func() bool { return e.shares(1, "shop", "/items/7")["south"] == 1 })
}

// Templates of every form that the relay lets through are accepted by Envoy, and the most specific
// one names the route; what Envoy would refuse is skipped and does no harm.
func TestRealEnvoyTakesHostileTemplates(t *testing.T) {
	envoyProgram(t)
	_, north := backend(t, "north", 0)
	server := startNATS(t, t.TempDir(), 0)
	p := newPublisher(t, server)
	conf := testConfig(t, server.ClientURL())
	writeEndpoints(t, conf, north, 1, 2)
	r := startRelay(t, conf)
	e := startEnvoy(t, "DELTA_GRPC", portOf(t, r.listener.Addr().String()), north)
	rs := ruleset(1, time.Minute, 10000)
	for _, path := range []string{"/", "/a", "/a/", "/{a}", "/a/{my-id}", "/{x}/{x}", "/{a}/{b}/{c}/{d}/{e}/{f}/{g}",
		"/{a_variable_with_a_long_name}/z", "/v{version}/{id}.json", "/a.b-c_d~e!$&'()+,;:@=", "/p%20q", "/v{a}/v{b}/v{c}/v{d}/v{e}/v{f}",
		"//", "/a//b", "/ü", "/*", "/**", "/{a}{b}", "/{", "/}", "/{}", "no", "", "/" + strings.Repeat("a", 300), "/{a=*}", "/x{y}"} {
		rs.TrafficClasses = append(rs.TrafficClasses, &spillwayv1.TrafficClass{Service: "shop", Method: "GET", PathTemplate: path})
	}
	for _, method := range []string{"", "get", "GET X"} {
		rs.TrafficClasses = append(rs.TrafficClasses, &spillwayv1.TrafficClass{Service: "shop", Method: method, PathTemplate: "/m"})
	}
	p.put(rs)
	p.ack(func(a *spillwayv1.Acknowledgement) bool {
		if a.GetOutcome() == spillwayv1.Outcome_OUTCOME_NACK {
			t.Errorf("Envoy refuses: %s", a.GetDetail())
		}
		return a.GetRulesetVersion() == 1 && strings.HasSuffix(a.GetTypeUrl(), "RouteConfiguration")
	})
	if got := e.shares(5, "shop", "/v1/7.json"); got["north"] != 5 {
		t.Errorf("went to %v", got)
	}
	if skipped := r.counters.Get(count.ClassesSkipped); skipped < 15 {
		t.Errorf("%d classes were skipped", skipped)
	}
}

// The inbound route table leads to the application.
func TestRealEnvoyInbound(t *testing.T) {
	envoyProgram(t)
	var calls atomic.Int32
	app := http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) })}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go app.Serve(listener) //nolint:errcheck // closed by the test
	t.Cleanup(func() { app.Close() })
	conf := testConfig(t, "nats://127.0.0.1:1")
	r := startRelay(t, conf)
	e := startEnvoy(t, "DELTA_GRPC", portOf(t, r.listener.Addr().String()), listener.Addr().(*net.TCPAddr).Port)
	if status, _ := e.call("inbound", "anything", "POST", "/x"); status != 200 || calls.Load() != 1 {
		t.Errorf("status %d, %d calls", status, calls.Load())
	}
}

// A destination that takes connections and drops them, as a proxy before a dead one does, is left
// within the second or two that it takes to see it.
func TestRealEnvoyLeavesADroppingDestination(t *testing.T) {
	envoyProgram(t)
	_, north := backend(t, "north", 0)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	server := startNATS(t, t.TempDir(), 0)
	p := newPublisher(t, server)
	conf := testConfig(t, server.ClientURL())
	writeEndpoints(t, conf, north, listener.Addr().(*net.TCPAddr).Port, 1)
	r := startRelay(t, conf)
	e := startEnvoy(t, "DELTA_GRPC", portOf(t, r.listener.Addr().String()), north)
	p.put(ruleset(1, time.Minute, 0, 10000))
	eventually(t, "version 1 is in the config dump", func() bool { return e.routesSay(`"ruleset_version": 1`) })
	inRow, deadline := 0, time.Now().Add(patience)
	for inRow < 100 {
		inRow++
		if status, _ := e.call("outbound", "shop", "GET", "/items/7"); status != 200 {
			inRow = 0
		}
		if time.Now().After(deadline) {
			t.Fatal("requests still fail")
		}
		time.Sleep(5 * time.Millisecond)
	}
}
