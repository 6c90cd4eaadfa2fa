package main

import (
	"strconv"
	"strings"
)

const (
	pathHeader   = "X-Lab-Path"
	reasonHeader = "X-Lab-Reason"
	// maxPathBytes is well below 60 KiB, above which Envoy refuses response headers.
	maxPathBytes = 8192
)

// joinPath concatenates a hop and its children's paths: "service@cluster,...". Hops beyond
// maxPathBytes are dropped and counted in a last element "+N", which includes the children's own
// counts.
func joinPath(hop string, children []string) string {
	hops, omitted := []string{hop}, 0
	for _, child := range children {
		if child == "" {
			continue
		}
		for below := range strings.SplitSeq(child, ",") {
			if count, found := strings.CutPrefix(below, "+"); found {
				n, _ := strconv.Atoi(count)
				omitted += n
			} else {
				hops = append(hops, below)
			}
		}
	}
	length := 0
	for i, hop := range hops {
		length += len(hop) + 1
		if i > 0 && length > maxPathBytes {
			omitted += len(hops) - i
			hops = hops[:i]
			break
		}
	}
	if omitted > 0 {
		hops = append(hops, "+"+strconv.Itoa(omitted))
	}
	return strings.Join(hops, ",")
}
