package serve

import (
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	load "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/serve/protocol"
)

const (
	// reportEvery is how often an Envoy reports its load: once per heartbeat.
	reportEvery = 2 * time.Second
	// reportSooner is the time after a report in which another one of the stream is ignored. An
	// Envoy never sends one so soon, so ignored reports need not even be decoded.
	reportSooner = reportEvery / 4
)

// Loads receives what Envoys report of their load. `stream` identifies the stream of a report, so
// that the end of an Envoy's old stream does not remove what its new one has reported.
type Loads interface {
	Reported(stream any, service, envoy string, stats []*endpoint.ClusterStats) error
	Left(stream any, envoy string)
}

// loadService is Envoy's Load Reporting Service.
type loadService struct {
	streams *Streams
	load.UnimplementedLoadReportingServiceServer
}

// StreamLoadStats takes the reports of one Envoy. Its first message is answered with the period and
// with the demand for all clusters. That message is only the node, unless the Envoy has reported on
// an earlier stream.
func (l *loadService) StreamLoadStats(grpc load.LoadReportingService_StreamLoadStatsServer) error {
	st := newStream(grpc, false)
	if err := l.streams.admit(st, &l.streams.reporting); err != nil {
		return err
	}
	defer l.closed(st)
	for last := (time.Time{}); ; {
		r := protocol.Report{}
		if err := st.RecvMsg(&r); err != nil {
			return nil // the Envoy or its connection is gone
		}
		now := time.Now()
		if now.Sub(last) < reportSooner {
			continue
		}
		isFirst := st.node.envoy == ""
		if err := l.take(st, &r); err != nil {
			return err
		}
		if !isFirst {
			last = now
			continue
		}
		if err := st.SendMsg(&load.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(reportEvery)}); err != nil {
			return nil // likewise
		}
	}
}

// take handles one report.
func (l *loadService) take(st *stream, r *protocol.Report) error {
	isFirst := st.node.envoy == ""
	err := r.Check()
	if err == nil {
		if err := l.streams.identify(st, r.Node); err != nil {
			return err // identify has counted it
		}
		if isFirst && len(r.Stats) == 0 {
			return nil // it does not know yet what to report
		}
		err = l.streams.Loads.Reported(st, st.node.service, st.node.envoy, r.Stats)
	}
	if err != nil {
		return l.streams.refuse(st.node.envoy, count.StreamsRefusedRequest, err)
	}
	l.streams.Counters.Add(count.LoadReportsTaken)
	return nil
}

func (l *loadService) closed(st *stream) {
	l.streams.mu.Lock()
	delete(l.streams.reporting, st)
	l.streams.mu.Unlock()
	l.streams.Loads.Left(st, st.node.envoy)
}
