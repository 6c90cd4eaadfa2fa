package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// given starts a server, and returns the options to send it requests with a channel of their paths.
func given(t *testing.T) (options, chan string) {
	t.Helper()
	seen := make(chan string, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.URL.Path }))
	t.Cleanup(server.Close)
	folder := t.TempDir()
	targets := filepath.Join(folder, "targets")
	lines := `{"method":"GET","url":"` + server.URL + `/a"}` + "\n" + `{"method":"GET","url":"` + server.URL + `/b"}` + "\n"
	if err := os.WriteFile(targets, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return options{name: "here", targets: targets, output: filepath.Join(folder, "output"),
		timeout: 10 * time.Second, maxWorkers: 100, seed: 1}, seen
}

// Load lasts until the input ends, targets take turns, and every request is in the results.
func TestEveryRequestIsInTheResults(t *testing.T) {
	o, seen := given(t)
	input, end := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(context.Background(), o, input, io.Discard) }()
	if _, err := io.WriteString(end, `{"segments": [{"seconds": 1, "rps": 200, "to_rps": 200}]}`+"\n"); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		<-seen
	}
	end.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.output)
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(text, []byte("\n")); lines != 20+len(seen) {
		t.Errorf("%d results of %d requests", lines, 20+len(seen))
	}
	for _, path := range []string{"/a", "/b"} {
		if !strings.Contains(string(text), path+`"`) {
			t.Errorf("no request of %s", path)
		}
	}
}

// A wrong line ends the program with an error that names the line.
func TestAWrongLineEndsTheLoad(t *testing.T) {
	o, _ := given(t)
	err := run(context.Background(), o, strings.NewReader("{\"segments\": []}\n"), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "line 1 of the input: segments: empty") {
		t.Errorf("got %v", err)
	}
}

// Files that cannot be used are named by their option.
func TestUnusableFilesAreNamed(t *testing.T) {
	o, _ := given(t)
	missing := o
	missing.targets = filepath.Join(t.TempDir(), "none")
	if err := run(context.Background(), missing, strings.NewReader(""), io.Discard); err == nil ||
		!strings.HasPrefix(err.Error(), "-targets: ") {
		t.Errorf("got %v", err)
	}
	o.output = t.TempDir()
	if err := run(context.Background(), o, strings.NewReader(""), io.Discard); err == nil ||
		!strings.HasPrefix(err.Error(), "-output: ") {
		t.Errorf("got %v", err)
	}
}

// An interrupt ends the load although the input is still open.
func TestAnInterruptEndsTheLoad(t *testing.T) {
	o, seen := given(t)
	ctx, interrupt := context.WithCancel(context.Background())
	input, end := io.Pipe()
	defer end.Close()
	done := make(chan error, 1)
	go func() { done <- run(ctx, o, input, io.Discard) }()
	if _, err := io.WriteString(end, `{"segments": [{"seconds": 1, "rps": 100, "to_rps": 100}]}`+"\n"); err != nil {
		t.Fatal(err)
	}
	<-seen
	interrupt()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
