// The relay of one cluster: rulesets from NATS JetStream KV to the cluster's Envoys over xDS, and
// their answers and presence back.
package main

import "spillway.dev/relay/internal/relay"

func main() { relay.Main() }
