package protocol

import (
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	load "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// reportNode is the number of the field `node` of envoy.service.load_stats.v3.LoadStatsRequest.
const reportNode = 1

// Report is a message of the Load Reporting Service. Envoy repeats its node in every one.
type Report struct {
	Node  *core.Node
	Stats []*endpoint.ClusterStats // none in the first report of a stream
	raw   []byte                   // nil once it is decoded
}

// Check decodes the report and refuses one that no Envoy sends.
func (r *Report) Check() error {
	raw, m := r.raw, &load.LoadStatsRequest{}
	r.raw = nil
	if err := proto.Unmarshal(slim(raw, reportNode), m); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	r.Node, r.Stats = m.GetNode(), m.GetClusterStats()
	return nil
}
