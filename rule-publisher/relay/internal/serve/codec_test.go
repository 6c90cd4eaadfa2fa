package serve

import (
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// A response goes out as the message that protobuf itself would write, and its resources' bytes are
// not copied.
func TestResponsesKeepTheirMeaning(t *testing.T) {
	set, err := NewSet(1, []*cluster.Cluster{{Name: "a", AltStatName: "content"}, {Name: "b"}}, Set{})
	if err != nil {
		t.Fatal(err)
	}
	for _, items := range [][]*item{nil, set.items} {
		delta := &discovery.DeltaDiscoveryResponse{SystemVersionInfo: "1.a", TypeUrl: "t", Nonce: "7", RemovedResources: []string{"x", "y"}}
		whole := &discovery.DiscoveryResponse{VersionInfo: "1.a", TypeUrl: "t", Nonce: "7"}
		for _, i := range items {
			delta.Resources = append(delta.Resources, &discovery.Resource{Name: i.name, Version: i.version, Resource: i.packed})
			whole.Resources = append(whole.Resources, i.packed)
		}
		for _, want := range []proto.Message{delta, whole} {
			r := &response{delta: want == delta, version: "1.a", typeURL: "t", nonce: "7", items: items}
			if r.delta {
				r.removed = delta.RemovedResources
			}
			encoded, err := newCodec().Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			back := want.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(encoded.Materialize(), back); err != nil || !proto.Equal(want, back) {
				t.Errorf("%v became %v, %v", want, back, err)
			}
			if len(items) > 0 && &encoded[2].ReadOnlyData()[0] != &items[0].packed.Value[0] {
				t.Error("a copy was made")
			}
		}
	}
}

// Of a node only its identity and place are read; everything else of a request is.
func TestRequestsAreReadWithASlimNode(t *testing.T) {
	place := &core.Locality{Region: "r", Zone: "z"}
	fat := &core.Node{Id: "n", Cluster: "c", Locality: place, Extensions: []*core.Extension{{Name: "e"}}, UserAgentName: "envoy"}
	slim := &core.Node{Id: "n", Cluster: "c", Locality: place}
	delta := &discovery.DeltaDiscoveryRequest{Node: fat, TypeUrl: "t", ResourceNamesSubscribe: []string{"a", "b"}, ResponseNonce: "3",
		InitialResourceVersions: map[string]string{"a": "1"}, ErrorDetail: &statuspb.Status{Code: 13, Message: "no"}}
	whole := &discovery.DiscoveryRequest{Node: fat, TypeUrl: "t", ResourceNames: []string{"a"}, VersionInfo: "9"}
	for _, request := range []proto.Message{delta, whole} {
		encoded, err := proto.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		back := request.ProtoReflect().New().Interface()
		if err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(encoded)}, back); err != nil {
			t.Fatal(err)
		}
		delta.Node, whole.Node = slim, slim
		if !proto.Equal(request, back) {
			t.Errorf("%v became %v", request, back)
		}
	}
}

// Whatever bytes come as a request: the codec reads what protobuf reads, refuses what it refuses.
func FuzzRequest(f *testing.F) {
	encoded, _ := proto.Marshal(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "n", Extensions: []*core.Extension{{Name: "e"}}}, TypeUrl: "t"})
	for _, seed := range [][]byte{encoded, encoded[:3], {}, {0xff}, {0x0a, 0x02, 0xff, 0xff}, {0x0a, 0x00}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		plain, ours := &discovery.DeltaDiscoveryRequest{}, &discovery.DeltaDiscoveryRequest{}
		want := proto.Unmarshal(content, plain)
		got := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(content)}, ours)
		if want != nil {
			return // what we do not read cannot be refused
		}
		if got != nil || ours.GetNode().GetId() != plain.GetNode().GetId() || ours.GetTypeUrl() != plain.GetTypeUrl() ||
			len(ours.GetResourceNamesSubscribe()) != len(plain.GetResourceNamesSubscribe()) {
			t.Errorf("%v became %v, %v", plain, ours, got)
		}
	})
}
