package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// calm is an application whose service time is always 100 ms, without calls.
const calm = `
call_timeout_ms: 1000
services:
  a:
    workers: 1
    queue: 100
    queue_timeout_ms: 60000
    endpoints: [{method: GET, path: "/x/{id}", service_time: {distribution: constant, mean_ms: 100}, response_bytes: 3}]
`

// podOf returns a pod and its handler without a network, so that time can be virtual.
func podOf(t *testing.T, service, yaml string) (*Pod, http.Handler) {
	t.Helper()
	return podThatCalls(t, service, "127.0.0.1:1", yaml)
}

// ask sends one request to a handler and returns its answer and how long it took.
func ask(handler http.Handler, method, path string) (*http.Response, time.Duration) {
	recorder, began := httptest.NewRecorder(), time.Now()
	handler.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
	return recorder.Result(), time.Since(began)
}

func set(t *testing.T, pod *Pod, patch string) {
	t.Helper()
	if _, problems := pod.state.Patch([]byte(patch)); len(problems) > 0 {
		t.Fatal(problems)
	}
}

// TestStateChangesAnswers checks what each key of the state does to the next request, and that the
// pod is as before when the key has its first value again.
func TestStateChangesAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod, handler := podOf(t, "a", calm)
		for _, c := range []struct {
			patch  string
			status int
			reason string
			took   time.Duration
		}{
			{`{}`, 200, "", 100 * time.Millisecond},
			{`{"speed": 0.25}`, 200, "", 400 * time.Millisecond},
			{`{"speed": 4, "delay_ms": 150}`, 200, "", 175 * time.Millisecond},
			{`{"error_rate": 1}`, 500, "injected_error", 175 * time.Millisecond},
			{`{"delay_share": 0}`, 500, "injected_error", 25 * time.Millisecond},
			{`{"available": false}`, 503, "unavailable", 0},
			{`{"speed": 1, "delay_ms": 0, "delay_share": 1, "error_rate": 0, "available": true}`, 200, "", 100 * time.Millisecond},
		} {
			set(t, pod, c.patch)
			response, took := ask(handler, "GET", "/x/1")
			if response.StatusCode != c.status || response.Header.Get(reasonHeader) != c.reason || took != c.took {
				t.Errorf("%s: %d %q after %v; want %d %q after %v", c.patch, response.StatusCode,
					response.Header.Get(reasonHeader), took, c.status, c.reason, c.took)
			}
		}
		counts := pod.Snapshot()
		if counts["served"] != 4 || counts["injected_error"] != 2 || counts["unavailable"] != 1 {
			t.Errorf("counts %v", counts)
		}
	})
}

// TestErrorRate checks that the endpoint's error rate and the state's are drawn independently.
func TestErrorRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod, handler := podOf(t, "a", strings.Replace(calm, "response_bytes: 3", "response_bytes: 3, error_rate: 0.2", 1))
		set(t, pod, `{"error_rate": 0.5}`)
		const requests, want = 4000, 1 - 0.8*0.5
		for range requests {
			ask(handler, "GET", "/x/1")
		}
		// Four standard deviations of a binomial share.
		if got := float64(pod.counts.Injected.Load()) / requests; got < want-0.031 || got > want+0.031 {
			t.Errorf("share of errors %.3f; want %.2f", got, want)
		}
	})
}

// TestDelayNeedsNoWorker checks that any number of requests are delayed at the same time, and that a
// client which goes away ends its delay.
func TestDelayNeedsNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod, handler := podOf(t, "a", strings.Replace(calm, "mean_ms: 100", "mean_ms: 1", 1))
		set(t, pod, `{"delay_ms": 1000}`)
		began := time.Now()
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() { ask(handler, "GET", "/x/1") })
		}
		group.Wait()
		if took := time.Since(began); took != 1050*time.Millisecond {
			t.Errorf("50 requests of 1 ms behind a delay of 1 s took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		began = time.Now()
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/x/1", nil).WithContext(ctx))
		if took := time.Since(began); took > 20*time.Millisecond {
			t.Errorf("a request whose client left after 10 ms was kept for %v", took)
		}
	})
}

// TestStateOverHTTP checks the health listener's answers to GET and PATCH of the state.
func TestStateOverHTTP(t *testing.T) {
	pod, _ := podOf(t, "a", calm)
	server := httptest.NewServer(healthHandler(pod))
	defer server.Close()
	send := func(method, body string) (int, map[string]any) {
		request, _ := http.NewRequest(method, server.URL+"/state", strings.NewReader(body))
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var document map[string]any
		if response.StatusCode != http.StatusMethodNotAllowed {
			if err := json.NewDecoder(response.Body).Decode(&document); err != nil {
				t.Fatal(err)
			}
		}
		return response.StatusCode, document
	}
	if status, got := send("GET", ""); status != 200 || got["workers"] != 1.0 || got["available"] != true || len(got) != 6 {
		t.Errorf("GET: %d %v", status, got)
	}
	if status, got := send("PATCH", `{"workers": 3}`); status != 200 || got["workers"] != 3.0 {
		t.Errorf("PATCH: %d %v", status, got)
	}
	for _, body := range []string{`{"workers": 0}`, "", `{"speed": 1` + strings.Repeat(" ", maxPatchBytes) + "}"} {
		status, got := send("PATCH", body)
		if problems, _ := got["problems"].([]any); status != 400 || len(problems) != 1 {
			t.Errorf("%.20q: %d %v; want 400 and one problem", body, status, got)
		}
	}
	if status, _ := send("POST", "{}"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d; want 405", status)
	}
	if got := pod.state.State(); got.Workers != 3 {
		t.Errorf("%+v; want 3 workers", got)
	}
}

// TestStateUnderLoad checks that patches, readers and requests at the same time lose no request. The
// race detector sees what they share.
func TestStateUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod, handler := podOf(t, "a", calm)
		const requests = 300
		var group sync.WaitGroup
		for i := range requests {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				ask(handler, "GET", "/x/1")
			})
		}
		for _, patch := range []string{`{"workers": 9}`, `{"speed": 3}`, `{"workers": 2, "delay_ms": 7}`, `{"error_rate": 0.5}`} {
			group.Go(func() {
				for range 50 {
					time.Sleep(90 * time.Millisecond)
					_, _ = pod.state.Patch([]byte(patch))
					_, _ = pod.state.State(), pod.pool.TakeUtilisation()
				}
			})
		}
		group.Wait()
		counts, total := pod.Snapshot(), uint64(0)
		for _, outcome := range []string{"served", "injected_error", "queue_full", "queue_timeout", "cancelled"} {
			total += counts[outcome]
		}
		if total != requests {
			t.Errorf("%d outcomes of %d requests: %v", total, requests, counts)
		}
		if busy, waiting := pod.pool.occupancy(); busy != 0 || waiting != 0 {
			t.Errorf("%d busy and %d waiting at the end", busy, waiting)
		}
	})
}
