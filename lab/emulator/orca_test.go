package main

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// reported parses a load report as Envoy does: names and values of a text, each once.
func reported(t *testing.T, header http.Header) load {
	t.Helper()
	text, found := strings.CutPrefix(header.Get(loadReportHeader), "TEXT ")
	if !found {
		t.Fatalf("%q", header.Get(loadReportHeader))
	}
	var l load
	if n, err := fmt.Sscanf(text, "application_utilization=%f,rps_fractional=%f,eps=%f",
		&l.utilisation, &l.answers, &l.failures); n != 3 || err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return l
}

// request sends one request to the handler and returns the load that its answer reports.
func request(t *testing.T, handler http.Handler) load {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
	return reported(t, recorder.Result().Header)
}

// worker serves a request by one worker of the pool for the time, and answers with the status.
func worker(pool *Pool, service time.Duration, status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := work(pool, service); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(status)
	})
}

func near(got, want load) bool {
	return math.Abs(got.utilisation-want.utilisation) < 0.01 &&
		math.Abs(got.answers-want.answers) < 0.1 && math.Abs(got.failures-want.failures) < 0.1
}

// TestAnswersReportTheLoadOfTheWindow checks the busy share, the answers and the failures per
// second of a steady load. After an idle time only the last request counts.
func TestAnswersReportTheLoadOfTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(4, 0, time.Second)
		good := WithLoadReports(worker(pool, 100*time.Millisecond, 200), pool, time.Second)
		var last load
		for range 30 { // one request each 100 ms: one of four workers is always busy
			last = request(t, good)
		}
		if want := (load{0.25, 10, 0}); !near(last, want) {
			t.Errorf("steady: %v, want %v", last, want)
		}
		time.Sleep(time.Hour)
		if got, want := request(t, good), (load{0.025, 1, 0}); !near(got, want) {
			t.Errorf("after an idle hour: %v, want %v", got, want)
		}
	})
}

// TestRefusalsAreReportedToo checks that an answer of a full pod reports it as wholly busy, and
// counts as a failure.
func TestRefusalsAreReportedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(1, 0, time.Second)
		handler := WithLoadReports(worker(pool, 5*time.Second, 200), pool, time.Second)
		var group sync.WaitGroup
		group.Go(func() { request(t, handler) })
		time.Sleep(2 * time.Second)
		if got, want := request(t, handler), (load{1, 1, 1}); !near(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		group.Wait()
	})
}

// TestStartIsIdleTime checks that a pod that has just started counts the time before as idle.
// Otherwise its first answer would report a busy pod.
func TestStartIsIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(1, 0, time.Second)
		got := request(t, WithLoadReports(worker(pool, 10*time.Millisecond, 200), pool, time.Second))
		if want := (load{0.01, 1, 0}); !near(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// TestBodyWithoutStatusIsReported checks that an answer whose handler only writes a body has the
// report, once.
func TestBodyWithoutStatusIsReported(t *testing.T) {
	pool := NewPool(1, 0, time.Second)
	handler := WithLoadReports(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("a"))
		_, _ = w.Write([]byte("b"))
	}), pool, time.Minute)
	if got := request(t, handler).answers; math.Abs(got-1.0/60) > 0.01 {
		t.Errorf("%v answers per second", got)
	}
}

// TestNoWindowNoReport checks that without a window the handler stays as it is.
func TestNoWindowNoReport(t *testing.T) {
	pool, recorder := NewPool(1, 0, time.Second), httptest.NewRecorder()
	handler := WithLoadReports(worker(pool, 0, 200), pool, 0)
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
	if got := recorder.Result().Header.Get(loadReportHeader); got != "" {
		t.Errorf("%q", got)
	}
}

// TestSamplesAreBounded checks that a meter keeps no more readings than its window needs, at
// whatever rate requests come.
func TestSamplesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(1, 0, time.Second)
		meter := newLoadMeter(pool, time.Second)
		for range 10_000 {
			meter.arrived()
			time.Sleep(time.Millisecond)
			meter.answer(200)
		}
		if len(meter.samples) > samplesPerWindow+2 {
			t.Errorf("%d samples", len(meter.samples))
		}
	})
}

// TestLoadReportWindow checks that a wrong window is refused with what is allowed.
func TestLoadReportWindow(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 0, "1000": time.Second, " 0.5 ": -1, "x": -1, "NaN": -1, "1e9": -1} {
		window, problems := loadReportWindow(func(string) string { return value })
		if want < 0 {
			if len(problems) != 1 || !strings.Contains(problems[0], "LAB_LOAD_REPORT_WINDOW_MS") {
				t.Errorf("%q: %v", value, problems)
			}
		} else if window != want || problems != nil {
			t.Errorf("%q: %v, %v", value, window, problems)
		}
	}
}
