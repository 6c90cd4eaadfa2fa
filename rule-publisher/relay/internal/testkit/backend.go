package testkit

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// StartBackend starts a server that answers with its name, on a port of 127.0.0.1; port 0 means
// any. Paths that end in "overloaded" are answered with 503. Paths that end in "attempt" are
// answered with Envoy's attempt number.
func StartBackend(t *testing.T, name string, port int) (server *http.Server, listens int) {
	t.Helper()
	return BackendOf(t, port, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "overloaded") {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		answer := name
		if strings.HasSuffix(r.URL.Path, "attempt") {
			answer = r.Header.Get("x-envoy-attempt-count")
		}
		io.WriteString(w, answer) //nolint:errcheck // the asker is gone
	})
}

// BackendOf starts a server with the handler, which runs until the test ends.
func BackendOf(t *testing.T, port int, handler http.HandlerFunc) (server *http.Server, listens int) {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	Must(t, err)
	server = &http.Server{Handler: handler}
	go server.Serve(listener) //nolint:errcheck // closed by the test
	t.Cleanup(func() { server.Close() })
	return server, listener.Addr().(*net.TCPAddr).Port
}
