package protocol

import (
	"errors"
	"maps"
	"slices"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"spillway.dev/relay/internal/serve/resources"
)

// TestResponsesKeepTheirMeaning checks that a response is encoded as a message that protobuf reads
// back unchanged, and that the bytes of its resources are not copied.
func TestResponsesKeepTheirMeaning(t *testing.T) {
	set, err := resources.NewSet(1, []*cluster.Cluster{{Name: "a", AltStatName: "content"}, {Name: "b"}}, resources.Set{})
	if err != nil {
		t.Fatal(err)
	}
	for _, items := range []resources.Items{nil, set.Items()} {
		delta := &discovery.DeltaDiscoveryResponse{SystemVersionInfo: "1.a", TypeUrl: "t", Nonce: "7", RemovedResources: []string{"x", "y"}}
		whole := &discovery.DiscoveryResponse{VersionInfo: "1.a", TypeUrl: "t", Nonce: "7"}
		for at, i := range items {
			packed := set.Packed()[at]
			delta.Resources = append(delta.Resources, &discovery.Resource{Name: i.Name, Version: i.Version, Resource: packed})
			whole.Resources = append(whole.Resources, packed)
		}
		for _, want := range []proto.Message{delta, whole} {
			r := &Response{delta: want == delta, version: "1.a", typeURL: "t", nonce: "7", items: items}
			if r.delta {
				r.removed = delta.RemovedResources
			}
			encoded, err := NewCodec().Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			back := want.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(encoded.Materialize(), back); err != nil || !proto.Equal(want, back) {
				t.Errorf("%v became %v, %v", want, back, err)
			}
			if len(items) > 0 && &encoded[2].ReadOnlyData()[0] != &set.Packed()[0].Value[0] {
				t.Error("a copy was made")
			}
		}
	}
}

// TestRequestsAreReadWithASlimNode checks that of a request's node only id, cluster and locality
// are read, and that all other fields of the request are.
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
	a, b := Request{Delta: true, raw: encodedDelta}, Request{raw: encodedWhole}
	if err := errors.Join(err1, err2, a.decode(), b.decode()); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(a.Node, slim) || a.typeURL != "t" || !slices.Equal(a.names, []string{"a", "b"}) || !slices.Equal(a.dropped, []string{"c"}) ||
		a.nonce != "3" || a.initial["a"] != "1" || a.failure.GetMessage() != "no" {
		t.Errorf("%v became %+v", delta, a)
	}
	if !proto.Equal(b.Node, slim) || b.typeURL != "t" || !slices.Equal(b.names, []string{"a"}) || b.version != "9" || b.nonce != "4" ||
		b.failure.GetMessage() != "no" {
		t.Errorf("%v became %+v", whole, b)
	}
}

// FuzzRequest checks, for any bytes and both variants, that the codec reads what protobuf reads. It
// also refuses what protobuf refuses, unless the fault is inside the node, most of which is not
// read.
func FuzzRequest(f *testing.F) {
	node := &core.Node{Id: "n", Extensions: []*core.Extension{{Name: "e"}}}
	failure := &statuspb.Status{Code: 13, Message: "no"}
	for _, seed := range []proto.Message{&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: "t", ResponseNonce: "1", ErrorDetail: failure,
		ResourceNamesSubscribe: []string{"a"}, ResourceNamesUnsubscribe: []string{"b"}, InitialResourceVersions: map[string]string{"a": "1"}},
		&discovery.DiscoveryRequest{Node: node, TypeUrl: "t", ResponseNonce: "1", ErrorDetail: failure, ResourceNames: []string{"a"}, VersionInfo: "1"}} {
		encoded, _ := proto.Marshal(seed)
		for _, delta := range []bool{true, false} {
			f.Add(delta, encoded)
			f.Add(delta, encoded[:3])
		}
	}
	for _, seed := range [][]byte{{}, {0xff}, {0x0a, 0x02, 0xff, 0xff}, {0x0a, 0x00}, {0x12, 0x02, 0x0a, 0x05}, {0x1a, 0x01, 0xff}} {
		f.Add(true, seed)
		f.Add(false, seed)
	}
	f.Fuzz(func(t *testing.T, delta bool, content []byte) {
		ours := Request{Delta: delta, raw: content}
		got := ours.decode()
		want, err := plainly(delta, content)
		if err != nil {
			if want, err = plainly(delta, withoutNode(delta, content)); err != nil && got == nil {
				t.Fatalf("%q: taken as %+v; protobuf says %v", content, ours, err)
			}
			ours.Node, want.Node = nil, nil
		} else if got != nil {
			t.Fatalf("%q: %v; protobuf reads it", content, got)
		}
		if got == nil && !same(ours, want) {
			t.Errorf("%+v became %+v", want, ours)
		}
	})
}

// plainly returns the request as protobuf alone reads it.
func plainly(delta bool, content []byte) (Request, error) {
	if delta {
		m := &discovery.DeltaDiscoveryRequest{}
		err := proto.Unmarshal(content, m)
		return Request{Node: m.GetNode(), typeURL: m.GetTypeUrl(), nonce: m.GetResponseNonce(), failure: m.GetErrorDetail(),
			names: m.GetResourceNamesSubscribe(), dropped: m.GetResourceNamesUnsubscribe(), initial: m.GetInitialResourceVersions()}, err
	}
	m := &discovery.DiscoveryRequest{}
	err := proto.Unmarshal(content, m)
	return Request{Node: m.GetNode(), typeURL: m.GetTypeUrl(), nonce: m.GetResponseNonce(), failure: m.GetErrorDetail(),
		names: m.GetResourceNames(), version: m.GetVersionInfo()}, err
}

// withoutNode returns the fields other than the node. Bytes that cannot be split into fields are
// returned unchanged.
func withoutNode(delta bool, content []byte) (out []byte) {
	node := protowire.Number(2)
	if delta {
		node = 1
	}
	for rest := content; len(rest) > 0; {
		number, kind, size := protowire.ConsumeField(rest)
		if size < 0 {
			return content
		}
		if number != node || kind != protowire.BytesType {
			out = append(out, rest[:size]...)
		}
		rest = rest[size:]
	}
	return out
}

// same reports whether both requests are equal. Of the nodes it compares id, cluster and zone.
func same(a, b Request) bool {
	return a.Node.GetId() == b.Node.GetId() && a.Node.GetCluster() == b.Node.GetCluster() &&
		a.Node.GetLocality().GetZone() == b.Node.GetLocality().GetZone() &&
		a.typeURL == b.typeURL && a.nonce == b.nonce && a.version == b.version && proto.Equal(a.failure, b.failure) &&
		slices.Equal(a.names, b.names) && slices.Equal(a.dropped, b.dropped) && maps.Equal(a.initial, b.initial)
}
