package envoy

import (
	"net"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	secrets "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	sds "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/testkit"
)

const secretType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// agent replaces Istio's agent: it gives Envoy the workload's certificate and the mesh's root by
// SDS.
type agent struct {
	sds.UnimplementedSecretDiscoveryServiceServer
	secrets map[string]*secrets.Secret
}

// serveSecrets serves SDS at the path of a socket until the test ends.
func serveSecrets(t *testing.T, socket string, mesh *identitytest.Authority, shown identitytest.Pair) {
	t.Helper()
	a := &agent{secrets: map[string]*secrets.Secret{
		"default": {Name: "default", Type: &secrets.Secret_TlsCertificate{TlsCertificate: &secrets.TlsCertificate{
			CertificateChain: inline(shown.Cert), PrivateKey: inline(shown.Key)}}},
		"ROOTCA": {Name: "ROOTCA", Type: &secrets.Secret_ValidationContext{ValidationContext: &secrets.CertificateValidationContext{
			TrustedCa: inline(mesh.PEM)}}},
	}}
	listener, err := net.Listen("unix", socket)
	testkit.Must(t, err)
	server := grpc.NewServer()
	sds.RegisterSecretDiscoveryServiceServer(server, a)
	go server.Serve(listener) //nolint:errcheck // stopped by the test
	t.Cleanup(server.Stop)
}

// StreamSecrets answers each request once. A request with a nonce is Envoy's acknowledgement of an
// answer.
func (a *agent) StreamSecrets(stream sds.SecretDiscoveryService_StreamSecretsServer) error {
	for {
		asked, err := stream.Recv()
		if err != nil {
			return nil // Envoy is gone
		}
		if asked.GetResponseNonce() != "" {
			continue
		}
		answer := &discovery.DiscoveryResponse{VersionInfo: "1", Nonce: "1", TypeUrl: secretType}
		for _, name := range asked.GetResourceNames() {
			packed, err := anypb.New(a.secrets[name])
			if err != nil {
				return err
			}
			answer.Resources = append(answer.Resources, packed)
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func inline(content []byte) *core.DataSource {
	return &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: content}}
}
