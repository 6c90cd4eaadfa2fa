package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

func testPod(t *testing.T, service, outbound, yaml string) (*Pod, *httptest.Server) {
	t.Helper()
	pod, handler := podThatCalls(t, service, outbound, yaml)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return pod, server
}

// podThatCalls returns a pod of the application and its handler. Its calls go to the address `outbound`.
func podThatCalls(t *testing.T, service, outbound, yaml string) (*Pod, http.Handler) {
	t.Helper()
	application, problems := ParseApplication([]byte(yaml))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	chance := NewChance(1)
	config := Config{Cluster: "here", Service: service, Pod: "0"}
	caller := NewCaller(outbound, time.Duration(application.CallTimeoutMs)*time.Millisecond, chance)
	pod := NewPod(config, application.Services[service], caller, chance)
	handler, err := pod.Handler(application.Services[service].Endpoints)
	if err != nil {
		t.Fatal(err)
	}
	return pod, handler
}

func get(t *testing.T, url string, header http.Header) (*http.Response, string) {
	t.Helper()
	request, _ := http.NewRequest(http.MethodGet, url, nil)
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response, string(body)
}

// TestCallsThroughOutbound checks that a call keeps path values, trace headers and the
// destination's name. The answer has the declared size and the path of the whole call tree.
func TestCallsThroughOutbound(t *testing.T) {
	_, callee := testPod(t, "b", "127.0.0.1:1", sound)
	var seen *http.Request
	outbound := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Clone(r.Context())
		response, err := http.Get(callee.URL + r.URL.EscapedPath())
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		w.Header().Set(pathHeader, response.Header.Get(pathHeader))
		w.WriteHeader(response.StatusCode)
	}))
	defer outbound.Close()
	pod, server := testPod(t, "a", strings.TrimPrefix(outbound.URL, "http://"), sound)
	trace := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	response, body := get(t, server.URL+"/x/4%2F2", http.Header{"Traceparent": {trace}, "B3": {"0"}, "X-Other": {"1"}})
	if response.StatusCode != http.StatusOK || len(body) != 10 {
		t.Errorf("status %d, %d bytes; want 200 and 10", response.StatusCode, len(body))
	}
	if got := response.Header.Get(pathHeader); got != "a@here,b@here" {
		t.Errorf("path %q", got)
	}
	if seen.Host != "b" || seen.URL.EscapedPath() != "/y/4%2F2" {
		t.Errorf("called %s %s", seen.Host, seen.URL.EscapedPath())
	}
	if seen.Header.Get("traceparent") != trace || seen.Header.Get("b3") != "0" || seen.Header.Get("x-other") != "" {
		t.Errorf("headers %v", seen.Header)
	}
	if pod.counts.Served.Load() != 1 {
		t.Errorf("counts %v", pod.Snapshot())
	}
}

// TestFailingChild checks that a failed call fails the request with 502 and the deepest reason,
// unless the call is optional.
func TestFailingChild(t *testing.T) {
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(pathHeader, "b@there")
		w.Header().Set(reasonHeader, "queue_full")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer broken.Close()
	outbound := strings.TrimPrefix(broken.URL, "http://")
	pod, server := testPod(t, "a", outbound, sound)
	response, _ := get(t, server.URL+"/x/1", nil)
	if response.StatusCode != 502 || response.Header.Get(reasonHeader) != "b: 503 queue_full" {
		t.Errorf("%d %q", response.StatusCode, response.Header.Get(reasonHeader))
	}
	if got := response.Header.Get(pathHeader); got != "a@here,b@there" {
		t.Errorf("path %q", got)
	}
	if pod.counts.CallFailed.Load() != 1 {
		t.Errorf("counts %v", pod.Snapshot())
	}
	optional := strings.Replace(sound, `path: "/y/{id}"}`, `path: "/y/{id}", optional: true}`, 1)
	_, server = testPod(t, "a", outbound, optional)
	if response, _ := get(t, server.URL+"/x/1", nil); response.StatusCode != 200 {
		t.Errorf("optional call: %d, want 200", response.StatusCode)
	}
	_, server = testPod(t, "a", "127.0.0.1:1", sound)
	response, _ = get(t, server.URL+"/x/1", nil)
	if response.StatusCode != 502 || response.Header.Get(reasonHeader) != "b: transport_dial" {
		t.Errorf("nobody listens: %d %q", response.StatusCode, response.Header.Get(reasonHeader))
	}
}

// TestStages checks that the stages of an endpoint run one after the other and the calls of one
// stage in parallel. A count repeats a call, and no stage runs after one that fails.
func TestStages(t *testing.T) {
	var mu sync.Mutex
	inFlight, most, paths := 0, 0, []string{}
	outbound := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		inFlight++
		most = max(most, inFlight)
		paths = append(paths, r.URL.Path)
		mu.Unlock()
		time.Sleep(50 * time.Millisecond)
		mu.Lock()
		inFlight--
		mu.Unlock()
		if r.URL.Path == "/y/second" {
			w.WriteHeader(500)
		}
	}))
	defer outbound.Close()
	staged := strings.Replace(sound, `[[{service: b, method: GET, path: "/y/{id}"}]]`,
		`[[{service: b, method: GET, path: "/y/first", count: 3}],
          [{service: b, method: GET, path: "/y/second"}], [{service: b, method: GET, path: "/y/third"}]]`, 1)
	_, server := testPod(t, "a", strings.TrimPrefix(outbound.URL, "http://"), staged)
	response, _ := get(t, server.URL+"/x/1", nil)
	want := "[/y/first /y/first /y/first /y/second]"
	if got := fmt.Sprint(paths); got != want || most != 3 || response.StatusCode != 502 {
		t.Errorf("calls %v (want %s), %d at once (want 3), status %d", got, want, most, response.StatusCode)
	}
}

// TestUnknownPath checks that a request that no endpoint matches is answered with 404 and a reason,
// and counted.
func TestUnknownPath(t *testing.T) {
	pod, server := testPod(t, "b", "127.0.0.1:1", sound)
	for _, path := range []string{"/", "/y", "/y/1/2"} {
		response, _ := get(t, server.URL+path, nil)
		if response.StatusCode != 404 || response.Header.Get(reasonHeader) != "no_endpoint" {
			t.Errorf("%s: %d", path, response.StatusCode)
		}
	}
	if pod.counts.Unknown.Load() != 3 {
		t.Errorf("counts %v", pod.Snapshot())
	}
}

// TestPathIsBounded checks that the path header never exceeds its bound, and that dropped hops are
// counted at every level.
func TestPathIsBounded(t *testing.T) {
	leaf := strings.Repeat("x", 90) + "@cluster"
	children := make([]string, 200)
	for i := range children {
		children[i] = leaf
	}
	once := joinPath("root@c", children)
	twice := joinPath("top@c", []string{once, "", once})
	for _, joined := range []string{once, twice} {
		if len(joined) > maxPathBytes+16 {
			t.Errorf("%d bytes", len(joined))
		}
	}
	count := func(path string) int {
		hops := strings.Split(path, ",")
		var omitted int
		_, _ = fmt.Sscanf(hops[len(hops)-1], "+%d", &omitted)
		return len(hops) - 1 + omitted
	}
	if count(once) != 201 || count(twice) != 403 {
		t.Errorf("%d and %d hops; want 201 and 403", count(once), count(twice))
	}
}
