package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// quantile returns the quantile by nearest rank. The values need not be sorted.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// figures holds the measurements of all rounds of one kind.
type figures struct {
	acks, last, cpu, bytes []float64
	responses, unchanged   int64
}

func collect(results []round, kind string) (f figures) {
	for _, r := range results {
		if r.kind == kind {
			f.acks = append(f.acks, r.acks...)
			f.last = append(f.last, r.last)
			f.cpu = append(f.cpu, r.cpu)
			f.bytes = append(f.bytes, float64(r.bytes))
			f.responses += r.responses
			f.unchanged += r.unchanged
		}
	}
	return f
}

// print writes a table for people, then a JSON line for programs. The times in that line are those
// of the rounds in which every service changes, the most expensive kind. rss_mb is the largest
// memory use 0.3 s after a round. rss_peak_mb is the peak of the whole run, including the start, in
// which all Envoys connect at once, and the middle of each round.
func print(out io.Writer, results []round, envoys int, relay *process) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "publishing\tACK p50 ms\tACK p99 ms\tlast ACK median (min–max) ms\tCPU ms\tKB sent\tresponses\tto unchanged")
	var unchanged int64
	rss := 0.0
	for _, r := range results {
		rss = max(rss, r.rss)
	}
	for _, kind := range kinds {
		f := collect(results, kind)
		unchanged += f.unchanged
		n := float64(max(1, len(f.last)))
		fmt.Fprintf(table, "%s\t%.0f\t%.0f\t%.0f (%.0f–%.0f)\t%.0f\t%.0f\t%.0f\t%.0f\n", kind, 1e3*quantile(f.acks, 0.5), 1e3*quantile(f.acks, 0.99),
			1e3*quantile(f.last, 0.5), 1e3*quantile(f.last, 0), 1e3*quantile(f.last, 1), 1e3*quantile(f.cpu, 0.5),
			quantile(f.bytes, 0.5)/1e3, float64(f.responses)/n, float64(f.unchanged)/n)
	}
	peak := relay.memory("VmHWM")
	fmt.Fprintf(table, "\nresident memory: %.0f MB at most 0.3 s after a round, %.0f MB at its peak\n", rss, peak)
	if err := table.Flush(); err != nil {
		return err
	}
	all := collect(results, changeAll)
	rounded := func(v float64) float64 { return math.Round(v*1e4) / 1e4 }
	return json.NewEncoder(out).Encode(map[string]any{
		"envoys": envoys, "ack_p50_s": rounded(quantile(all.acks, 0.5)), "ack_p99_s": rounded(quantile(all.acks, 0.99)),
		"last_ack_p50_s": rounded(quantile(all.last, 0.5)), "last_ack_max_s": rounded(quantile(all.last, 1)),
		"rss_mb": rounded(rss), "rss_peak_mb": rounded(peak),
		"cpu_s_per_publish": rounded(quantile(all.cpu, 0.5)),
		"bytes_per_publish": quantile(all.bytes, 0.5), "unchanged_responses": unchanged,
	})
}
