package protocol

import (
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Field numbers of envoy.service.discovery.v3 and envoy.config.core.v3.Node.
const (
	deltaRequestNode = 1
	requestNode      = 2
	nodeID           = 1
	nodeCluster      = 2
	nodeLocality     = 4
)

// Request is a request of either protocol variant.
type Request struct {
	Delta          bool
	Node           *core.Node // required only in the first request of a stream
	raw            []byte     // nil once it is decoded
	typeURL, nonce string
	failure        *statuspb.Status
	names          []string          // asked for: all names or, in delta, those added
	dropped        []string          // delta: names no longer asked for
	version        string            // state-of-the-world: the version that the Envoy says it has
	initial        map[string]string // delta: versions that it holds from an earlier stream, by name
}

// Check decodes the request and refuses one that no Envoy sends.
func (r *Request) Check() error {
	if err := r.decode(); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if n := len(r.typeURL); n == 0 || n > typeURLLimit {
		return status.Errorf(codes.InvalidArgument, "type_url: %d bytes; must be 1..%d on an aggregated stream", n, typeURLLimit)
	}
	return nil
}

// decode parses the raw bytes. It skips most of the node, because a real Envoy's node names
// hundreds of extensions that the relay does not need.
func (r *Request) decode() error {
	raw := r.raw
	r.raw = nil
	if r.Delta {
		m := &discovery.DeltaDiscoveryRequest{}
		err := proto.Unmarshal(slim(raw, deltaRequestNode), m)
		r.Node, r.typeURL, r.nonce, r.failure = m.GetNode(), m.GetTypeUrl(), m.GetResponseNonce(), m.GetErrorDetail()
		r.names, r.dropped, r.initial = m.GetResourceNamesSubscribe(), m.GetResourceNamesUnsubscribe(), m.GetInitialResourceVersions()
		return err
	}
	m := &discovery.DiscoveryRequest{}
	err := proto.Unmarshal(slim(raw, requestNode), m)
	r.Node, r.typeURL, r.nonce, r.failure = m.GetNode(), m.GetTypeUrl(), m.GetResponseNonce(), m.GetErrorDetail()
	r.names, r.version = m.GetResourceNames(), m.GetVersionInfo()
	return err
}

// slim returns the request with a node reduced to id, cluster and locality. Bytes that are not
// valid protobuf are returned unchanged, so that the decoder refuses them.
func slim(whole []byte, node protowire.Number) []byte {
	out, ok := filter(whole, func(field protowire.Number, value []byte) ([]byte, bool) {
		if field != node {
			return value, true
		}
		kept, ok := filter(value, func(field protowire.Number, value []byte) ([]byte, bool) {
			return value, field == nodeID || field == nodeCluster || field == nodeLocality
		})
		if !ok {
			return value, true
		}
		return kept, true
	})
	if !ok {
		return whole
	}
	return out
}

// filter keeps those length-delimited fields of a message that `keep` returns true for, with the
// value that it returns. Fields of other types stay.
func filter(message []byte, keep func(protowire.Number, []byte) ([]byte, bool)) (out []byte, ok bool) {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, false
		}
		size := protowire.ConsumeFieldValue(field, kind, message[n:])
		if size < 0 {
			return nil, false
		}
		if kind != protowire.BytesType {
			out = append(out, message[:n+size]...)
		} else if value, _ := protowire.ConsumeBytes(message[n:]); value != nil {
			if value, kept := keep(field, value); kept {
				out = protowire.AppendBytes(protowire.AppendTag(out, field, kind), value)
			}
		}
		message = message[n+size:]
	}
	return out, true
}
