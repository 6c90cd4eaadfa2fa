package component

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"spillway.dev/relay/internal/testkit"
)

// programs is the folder in which tools/bring puts etcd and kube-apiserver.
const programs = "../../../.spillway/bin"

// apiServer is a real Kubernetes API: kube-apiserver with RBAC over etcd. No controllers run, so
// the test itself writes EndpointSlices.
type apiServer struct {
	t       *testing.T
	folder  string
	etcd    string
	port    int
	process *exec.Cmd
}

func startAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{t: t, folder: t.TempDir(), port: testkit.FreePort(t), etcd: "http://" + testkit.FreeAddress(t)}
	peers := "http://" + testkit.FreeAddress(t)
	testkit.Start(t, program(t, "etcd"), "--data-dir", filepath.Join(a.folder, "etcd"), "--listen-client-urls", a.etcd,
		"--advertise-client-urls", a.etcd, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
		"--initial-cluster", "default="+peers, "--unsafe-no-fsync", "--log-level", "warn")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	encoded := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	must(t, os.WriteFile(a.path("accounts.key"), encoded, 0o600))
	must(t, os.WriteFile(a.path("tokens.csv"), []byte(`administrator,administrator,1,"system:masters"`+"\n"), 0o600))
	a.start()
	return a
}

func program(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(programs, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; tools/bring %s brings it", err, name)
	}
	return path
}

func (a *apiServer) path(name string) string { return filepath.Join(a.folder, name) }

func (a *apiServer) start() {
	a.t.Helper()
	a.process = testkit.Start(a.t, program(a.t, "kube-apiserver"), "--etcd-servers", a.etcd, "--bind-address", "127.0.0.1",
		"--secure-port", fmt.Sprint(a.port), "--cert-dir", a.path("certificates"), "--authorization-mode", "RBAC",
		"--token-auth-file", a.path("tokens.csv"), "--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", a.path("accounts.key"), "--service-account-signing-key-file", a.path("accounts.key"),
		"--service-cluster-ip-range", "10.96.0.0/24", "--shutdown-delay-duration", "0s",
		"--disable-admission-plugins", "ServiceAccount")
	deadline := time.Now().Add(2 * time.Minute) // it creates its own objects first
	for {
		if status, _ := a.ask("administrator", "GET", "/readyz", nil); status == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			a.t.Fatal("the API server does not become ready")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (a *apiServer) kill() {
	a.t.Helper()
	must(a.t, a.process.Process.Kill())
	a.process.Wait() //nolint:errcheck // killed
}

func (a *apiServer) ask(token, method, path string, body any) (status int, answer []byte) {
	a.t.Helper()
	authority, err := os.ReadFile(a.path("certificates/apiserver.crt"))
	if err != nil {
		return 0, nil
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	encoded, err := json.Marshal(body)
	must(a.t, err)
	request, err := http.NewRequest(method, fmt.Sprintf("https://127.0.0.1:%d%s", a.port, path), bytes.NewReader(encoded))
	must(a.t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	answer, _ = io.ReadAll(response.Body)
	return response.StatusCode, answer
}

// do sends a request as administrator, and ends the test when it fails.
func (a *apiServer) do(method, path string, body any) []byte {
	a.t.Helper()
	status, answer := a.ask("administrator", method, path, body)
	if status < 200 || status > 299 {
		a.t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	return answer
}

func (a *apiServer) namespace(name string) {
	a.t.Helper()
	a.do("POST", "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name}})
}

// apply creates the objects of a YAML file.
func (a *apiServer) apply(file string) {
	a.t.Helper()
	content, err := os.ReadFile(file)
	must(a.t, err)
	for _, document := range strings.Split(string(content), "\n---\n") {
		var object struct {
			APIVersion string
			Kind       string
			Metadata   struct{ Namespace string }
		}
		must(a.t, yaml.Unmarshal([]byte(document), &object))
		var whole map[string]any
		must(a.t, yaml.Unmarshal([]byte(document), &whole))
		group := "/apis/" + object.APIVersion
		if object.APIVersion == "v1" {
			group = "/api/v1"
		}
		a.do("POST", group+"/namespaces/"+object.Metadata.Namespace+"/"+strings.ToLower(object.Kind)+"s", whole)
	}
}

// kubeconfig creates a token for a service account, as one of its pods would have, and a kubeconfig
// with that token.
func (a *apiServer) kubeconfig(namespace, account string) (path, token string) {
	a.t.Helper()
	var granted struct{ Status struct{ Token string } }
	must(a.t, json.Unmarshal(a.do("POST", "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token",
		map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{}}), &granted))
	path = a.path("kubeconfig")
	must(a.t, os.WriteFile(path, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:%d", certificate-authority: %s}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: here, context: {cluster: c, user: u}}]
current-context: here
`, a.port, a.path("certificates/apiserver.crt"), granted.Status.Token), 0o600))
	return path, granted.Status.Token
}
