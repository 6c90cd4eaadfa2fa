package protocol

import (
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	load "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"spillway.dev/relay/internal/testkit"
)

func received(t *testing.T, raw []byte) *Report {
	t.Helper()
	r := &Report{}
	testkit.Must(t, NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, r))
	return r
}

// TestAReportKeepsIdentityAndStats checks that the part of the node that Envoy repeats in each report
// and that the relay does not need is skipped.
func TestAReportKeepsIdentityAndStats(t *testing.T) {
	node := &core.Node{Id: "north/gate/a", Cluster: "gate", Locality: &core.Locality{Zone: "north"}, UserAgentName: "envoy",
		Extensions: []*core.Extension{{Name: "one"}, {Name: "two"}}}
	raw, err := proto.Marshal(&load.LoadStatsRequest{Node: node, ClusterStats: []*endpoint.ClusterStats{{ClusterName: "shop|south"}}})
	testkit.Must(t, err)
	r := received(t, raw)
	testkit.Must(t, r.Check())
	want := &core.Node{Id: "north/gate/a", Cluster: "gate", Locality: &core.Locality{Zone: "north"}}
	if !proto.Equal(r.Node, want) || len(r.Stats) != 1 || r.Stats[0].GetClusterName() != "shop|south" {
		t.Errorf("%v, %v", r.Node, r.Stats)
	}
}

// TestAReportThatDoesNotDecodeIsRefused checks that no bytes do harm.
func TestAReportThatDoesNotDecodeIsRefused(t *testing.T) {
	for _, raw := range []string{"\x0a\x05ab", "\xff", "\x12\x02\x0a\x7f", "\x12\x03\x0a\x01\xff"} {
		if err := received(t, []byte(raw)).Check(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v, want InvalidArgument", raw, err)
		}
	}
	testkit.Must(t, received(t, nil).Check())
}
