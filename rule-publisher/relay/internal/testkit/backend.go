package testkit

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// StartBackend answers with its name on a port of 127.0.0.1, 0: any. Paths that end in "overloaded" are
// answered 503; those in "attempt" with the number of the attempt, as Envoy says it.
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

// BackendOf a handler, until the test ends.
func BackendOf(t *testing.T, port int, handler http.HandlerFunc) (server *http.Server, listens int) {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	Must(t, err)
	server = &http.Server{Handler: handler}
	go server.Serve(listener) //nolint:errcheck // closed by the test
	t.Cleanup(func() { server.Close() })
	return server, listener.Addr().(*net.TCPAddr).Port
}
