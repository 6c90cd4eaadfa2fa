// Package component has the relay's builders and sources against the real programs on their other
// side: Envoy (SPILLWAY_ENVOY) and the Kubernetes API server (.spillway/bin).
package component

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"spillway.dev/relay/internal/envoy"
	"spillway.dev/relay/internal/table"
)

const patience = 20 * time.Second

// proxy is a running Envoy.
type proxy struct {
	t         *testing.T
	admin     string
	listeners map[string]string // name -> host:port
}

// caller runs the Envoy of a service in cluster north with exactly the routes and clusters that
// the relay would serve it, written into its bootstrap: no relay in between.
func caller(t *testing.T, network *table.Network, tab table.Table) *proxy {
	t.Helper()
	routes, err := envoy.OutboundRoutes(tab)
	must(t, err)
	clusters, assignments := envoy.Backends(network)
	var described []string
	for i, c := range clusters {
		c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
		c.EdsClusterConfig, c.LoadAssignment = nil, assignments[i]
		described = append(described, asJSON(t, c))
	}
	return startProxy(t, "testdata/caller.yaml", map[string]any{"Routes": asJSON(t, routes), "Clusters": described})
}

func asJSON(t *testing.T, message proto.Message) string {
	t.Helper()
	text, err := protojson.Marshal(message)
	must(t, err)
	return string(text)
}

func startProxy(t *testing.T, bootstrap string, values map[string]any) *proxy {
	t.Helper()
	program := os.Getenv("SPILLWAY_ENVOY")
	if program == "" {
		t.Fatal("SPILLWAY_ENVOY: not set; must be the path of an Envoy program")
	}
	parsed, err := template.ParseFiles(bootstrap)
	must(t, err)
	var text bytes.Buffer
	must(t, parsed.Execute(&text, values))
	folder := t.TempDir()
	config, adminPath := filepath.Join(folder, "bootstrap.yaml"), filepath.Join(folder, "admin")
	must(t, os.WriteFile(config, text.Bytes(), 0o600))
	start(t, program, "-c", config, "--admin-address-path", adminPath, "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning")
	p := &proxy{t: t, listeners: map[string]string{}}
	eventually(t, "Envoy is live", func() bool {
		admin, err := os.ReadFile(adminPath)
		if err != nil || len(admin) == 0 {
			return false
		}
		p.admin = "http://" + string(admin)
		return p.get("/ready") == "LIVE\n"
	})
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
	must(t, json.Unmarshal([]byte(p.get("/listeners?format=json")), &page))
	for _, s := range page.Statuses {
		p.listeners[s.Name] = fmt.Sprintf("127.0.0.1:%d", s.Local.Socket.Port)
	}
	return p
}

func (p *proxy) get(path string) string {
	response, err := http.Get(p.admin + path)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// answer to one call: the status, and the body, which is the backend's name.
type answer struct {
	status int
	body   string
	took   time.Duration
}

// call a service through the proxy; the path goes out as it is written.
func (p *proxy) call(service, method, path string) answer {
	p.t.Helper()
	request, err := http.NewRequest(method, "http://"+p.listeners["outbound"], nil)
	must(p.t, err)
	request.Host, request.URL.Opaque = service, path
	begin := time.Now()
	response, err := http.DefaultClient.Do(request)
	must(p.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(p.t, err)
	return answer{response.StatusCode, string(body), time.Since(begin)}
}

// start a program that ends with the test; its output is shown when the test fails.
func start(t *testing.T, program string, arguments ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(program, arguments...)
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	must(t, err)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, command.Start())
	t.Cleanup(func() {
		command.Process.Kill() //nolint:errcheck // it may have ended
		command.Wait()         //nolint:errcheck // killed
		output.Close()
		if t.Failed() {
			log, _ := os.ReadFile(output.Name())
			lines := strings.Split(string(log), "\n")
			t.Logf("%s:\n%s", filepath.Base(program), strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	})
	return command
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not in %s: %s", patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
