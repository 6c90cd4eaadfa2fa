package serve

import (
	"errors"
	"slices"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
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
		ResourceNamesUnsubscribe: []string{"c"},
		InitialResourceVersions:  map[string]string{"a": "1"}, ErrorDetail: &statuspb.Status{Code: 13, Message: "no"}}
	whole := &discovery.DiscoveryRequest{Node: fat, TypeUrl: "t", ResourceNames: []string{"a"}, VersionInfo: "9", ResponseNonce: "4",
		ErrorDetail: &statuspb.Status{Code: 13, Message: "no"}}
	encodedDelta, err1 := proto.Marshal(delta)
	encodedWhole, err2 := proto.Marshal(whole)
	a, b := request{delta: true, raw: encodedDelta}, request{raw: encodedWhole}
	if err := errors.Join(err1, err2, a.decode(), b.decode()); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(a.node, slim) || a.typeURL != "t" || !slices.Equal(a.names, []string{"a", "b"}) || !slices.Equal(a.dropped, []string{"c"}) ||
		a.nonce != "3" || a.initial["a"] != "1" || a.failure.GetMessage() != "no" {
		t.Errorf("%v became %+v", delta, a)
	}
	if !proto.Equal(b.node, slim) || b.typeURL != "t" || !slices.Equal(b.names, []string{"a"}) || b.version != "9" || b.nonce != "4" ||
		b.failure.GetMessage() != "no" {
		t.Errorf("%v became %+v", whole, b)
	}
}

// Whatever bytes come as a request: the codec reads what protobuf reads, refuses what it refuses.
func FuzzRequest(f *testing.F) {
	encoded, _ := proto.Marshal(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "n", Extensions: []*core.Extension{{Name: "e"}}}, TypeUrl: "t"})
	for _, seed := range [][]byte{encoded, encoded[:3], {}, {0xff}, {0x0a, 0x02, 0xff, 0xff}, {0x0a, 0x00}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		plain, ours := &discovery.DeltaDiscoveryRequest{}, request{delta: true, raw: content}
		want, got := proto.Unmarshal(content, plain), ours.decode()
		if want != nil {
			return // what we do not read cannot be refused
		}
		if got != nil || ours.node.GetId() != plain.GetNode().GetId() || ours.typeURL != plain.GetTypeUrl() ||
			len(ours.names) != len(plain.GetResourceNamesSubscribe()) {
			t.Errorf("%v became %+v, %v", plain, ours, got)
		}
	})
}
