package testkit

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Envoy is a running Envoy process.
type Envoy struct {
	t         *testing.T
	admin     string
	listeners map[string]string // name -> host:port
}

// Answer is the result of one call. The body is the backend's name.
type Answer struct {
	Status int
	Body   string
	Took   time.Duration
}

// EnvoyProgram returns the value of SPILLWAY_ENVOY, and fails the test when it is not set.
func EnvoyProgram(t *testing.T) string {
	t.Helper()
	program := os.Getenv("SPILLWAY_ENVOY")
	if program == "" {
		t.Fatal("SPILLWAY_ENVOY: not set; must be the path of an Envoy program")
	}
	return program
}

// StartEnvoy starts an Envoy with the bootstrap and waits for its admin interface.
func StartEnvoy(t *testing.T, bootstrap string) *Envoy {
	t.Helper()
	folder := t.TempDir()
	config, adminPath := filepath.Join(folder, "bootstrap.yaml"), filepath.Join(folder, "admin")
	Must(t, os.WriteFile(config, []byte(bootstrap), 0o600))
	Start(t, EnvoyProgram(t), "-c", config, "--admin-address-path", adminPath, "--use-dynamic-base-id", "--concurrency", "1",
		"-l", "warning", "--drain-time-s", "1")
	e := &Envoy{t: t, listeners: map[string]string{}}
	Eventually(t, "Envoy's admin page", func() bool {
		admin, err := os.ReadFile(adminPath)
		if err != nil || len(admin) == 0 {
			return false
		}
		e.admin = "http://" + string(admin)
		return e.Get("/ready") != ""
	})
	return e
}

// Live waits until Envoy serves, and reads the addresses of its listeners.
func (e *Envoy) Live() *Envoy {
	e.t.Helper()
	Eventually(e.t, "Envoy is live", func() bool { return e.Get("/ready") == "LIVE\n" })
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
	Must(e.t, json.Unmarshal([]byte(e.Get("/listeners?format=json")), &page))
	for _, s := range page.Statuses {
		e.listeners[s.Name] = fmt.Sprintf("127.0.0.1:%d", s.Local.Socket.Port)
	}
	return e
}

// Get returns a page of the admin interface, or "" when there is none.
func (e *Envoy) Get(path string) string {
	response, err := http.Get(e.admin + path)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// Post sends an empty POST request to a page of the admin interface.
func (e *Envoy) Post(path string) {
	e.t.Helper()
	response, err := http.Post(e.admin+path, "", nil)
	Must(e.t, err)
	response.Body.Close()
}

// Stat returns the value of a counter or gauge, or -1 when no such name exists.
func (e *Envoy) Stat(name string) int {
	_, text, found := strings.Cut("\n"+e.Get("/stats"), "\n"+name+": ")
	line, _, _ := strings.Cut(text, "\n")
	if value, err := strconv.Atoi(line); found && err == nil {
		return value
	}
	return -1
}

// RoutesSay reports whether the config dump of routes contains the text.
func (e *Envoy) RoutesSay(text string) bool {
	return strings.Contains(e.Get("/config_dump?resource=dynamic_route_configs"), text)
}

// Listener returns the address of a listener by its name.
func (e *Envoy) Listener(name string) string { return e.listeners[name] }

// Call calls a service through a listener.
func (e *Envoy) Call(listener, service, method, path string) Answer {
	e.t.Helper()
	request, err := http.NewRequest(method, "http://"+e.listeners[listener]+path, nil)
	Must(e.t, err)
	request.Host = service
	begin := time.Now()
	response, err := http.DefaultClient.Do(request)
	Must(e.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	Must(e.t, err)
	return Answer{response.StatusCode, string(body), time.Since(begin)}
}

// Shares makes n GET calls through the outbound listener and counts the answers of each backend.
// Each call must succeed.
func (e *Envoy) Shares(n int, service, path string) map[string]int {
	e.t.Helper()
	shares := map[string]int{}
	for range n {
		got := e.Call("outbound", service, "GET", path)
		if got.Status != http.StatusOK {
			e.t.Fatalf("status %d %s", got.Status, got.Body)
		}
		shares[got.Body]++
	}
	return shares
}
