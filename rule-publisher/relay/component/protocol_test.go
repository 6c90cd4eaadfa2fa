package component

import (
	"io"
	"net/http"
	"testing"
)

// TestProtocolStays checks that a request that arrives by HTTP/2 (gRPC) leaves by HTTP/2, and one
// by HTTP/1.1 leaves by HTTP/1.1.
func TestProtocolStays(t *testing.T) {
	listener := listen(t)
	both := &http.Protocols{}
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: both, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto) //nolint:errcheck // the asker is gone
	})}
	go server.Serve(listener) //nolint:errcheck // closed by the test
	t.Cleanup(func() { server.Close() })
	p := callerOf(t, backend(t, "north"), listener.Addr().String(), backend(t, "far"))
	for want, choose := range map[string]func(*http.Protocols, bool){
		"HTTP/1.1": (*http.Protocols).SetHTTP1, "HTTP/2.0": (*http.Protocols).SetUnencryptedHTTP2} {
		protocols := &http.Protocols{}
		choose(protocols, true)
		client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
		request, err := http.NewRequest("GET", "http://"+p.Listener("outbound")+"/items/7", nil)
		must(t, err)
		request.Host = "shop"
		response, err := client.Do(request)
		must(t, err)
		body, err := io.ReadAll(response.Body)
		must(t, err)
		response.Body.Close()
		client.CloseIdleConnections()
		if string(body) != want {
			t.Errorf("the backend was called by %s, want %s", body, want)
		}
	}
}
