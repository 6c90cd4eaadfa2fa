package count

// Counter is one row of the table. Only declared counters can be counted.
type Counter int

// The counters of the relay.
const (
	AcknowledgementsDropped Counter = iota
	AcknowledgementsStored
	AnswersAccepted
	AnswersRefused
	ClassesSkipped
	EndpointsCut
	EndpointsIgnored
	EndpointsUnreachable
	FilesRefused
	HeartbeatsNotSent
	HeartbeatsSent
	KubernetesErrors
	LoadReportsTaken
	NamesFailed
	NamesNeverResolved
	NATSErrors
	RulesAdapted
	RulesetKeysRefused
	RulesetKeysTaken
	RulesetsBadSignature
	RulesetsDuplicate
	RulesetsExpired
	RulesetsOtherCluster
	RulesetsRefused
	RulesetsReplayed
	RulesetsStale
	RulesetsTaken
	RulesetsUndecodable
	RulesetsUnknownKey
	RulesetsUnsigned
	SnapshotsRefused
	StateErrors
	StreamsOpened
	StreamsRefusedIdentity
	StreamsRefusedNode
	StreamsRefusedRequest
	TLSFilesRefused
	TLSFilesTaken
	TLSHandshakesRefused
	declared // the number of counters
)

// table holds the name and the help text of each counter. The names are an interface: dashboards
// and alerts depend on them.
var table = [declared]struct{ name, help string }{
	AcknowledgementsDropped: {"acknowledgements_dropped", "Answers of Envoys that were never stored in NATS because too many waited, or NATS takes none of that size."},
	AcknowledgementsStored:  {"acknowledgements_stored", "Answers of Envoys that NATS has stored."},
	AnswersAccepted:         {"answers_accepted", "Versions of a resource type that an Envoy accepted (ACK)."},
	AnswersRefused:          {"answers_refused", "Versions of a resource type that an Envoy refused (NACK)."},
	ClassesSkipped:          {"classes_skipped", "Traffic classes that Envoy cannot match and that take the catch-all route."},
	EndpointsCut:            {"endpoints_cut", "Addresses of a name beyond the most that one name may have."},
	EndpointsIgnored:        {"endpoints_ignored", "EndpointSlices, or endpoints in them, that cannot be used."},
	EndpointsUnreachable:    {"endpoints_unreachable", "Endpoints that cannot be routed to."},
	FilesRefused:            {"files_refused", "New versions of topology or endpoints that were refused; the old one stayed."},
	HeartbeatsNotSent:       {"heartbeats_not_sent", "Heartbeats that could not be sent."},
	HeartbeatsSent:          {"heartbeats_sent", "Heartbeats sent."},
	KubernetesErrors:        {"kubernetes_errors", "Lists and watches of EndpointSlices that failed; the last good ones stayed."},
	LoadReportsTaken:        {"load_reports_taken", "Reports of calls in flight that were taken from Envoys."},
	NamesFailed:             {"names_failed", "Look-ups of names that failed; the last good answer stayed."},
	NamesNeverResolved:      {"names_never_resolved", "Names whose first look-up failed."},
	NATSErrors:              {"nats_errors", "Errors that the NATS server reported, such as a subject that is not permitted."},
	RulesAdapted:            {"rules_adapted", "Rules that were adapted because a destination is denied or has no reachable endpoint."},
	RulesetKeysRefused:      {"ruleset_keys_refused", "New files of ruleset keys that were refused; the old keys stayed."},
	RulesetKeysTaken:        {"ruleset_keys_taken", "New files of ruleset keys that came into use."},
	RulesetsBadSignature:    {"rulesets_bad_signature", "Rulesets refused because their signature does not match them; the old one stayed."},
	RulesetsDuplicate:       {"rulesets_duplicate", "Rulesets ignored because their version is in force already."},
	RulesetsExpired:         {"rulesets_expired", "Rulesets that expired without a successor; their weights give way to local-first."},
	RulesetsOtherCluster:    {"rulesets_other_cluster", "Rulesets refused because they were signed for another cluster; the old one stayed."},
	RulesetsRefused:         {"rulesets_refused", "Rulesets that break the contract; the old one stayed."},
	RulesetsReplayed:        {"rulesets_replayed", "Rulesets refused because a higher version was taken before."},
	RulesetsStale:           {"rulesets_stale", "Rulesets refused because they had expired when they arrived."},
	RulesetsTaken:           {"rulesets_taken", "Rulesets that came into force."},
	RulesetsUndecodable:     {"rulesets_undecodable", "Values of the cluster's key that are not a ruleset; the old one stayed."},
	RulesetsUnknownKey:      {"rulesets_unknown_key", "Rulesets refused because no trusted key signed them; the old one stayed."},
	RulesetsUnsigned:        {"rulesets_unsigned", "Rulesets refused because nobody signed them; the old one stayed."},
	SnapshotsRefused:        {"snapshots_refused", "Resources that did not fit together and were not served."},
	StateErrors:             {"state_errors", "Failures to read or write the state on disk."},
	StreamsOpened:           {"streams_opened", "xDS streams of Envoys that were accepted."},
	StreamsRefusedIdentity:  {"streams_refused_identity", "xDS streams ended because the certificate does not belong to the node."},
	StreamsRefusedNode:      {"streams_refused_node", "xDS streams ended because the node has no name, a name that is too long, or another cluster."},
	StreamsRefusedRequest:   {"streams_refused_request", "xDS streams ended because a request is malformed or asks for more than one Envoy may."},
	TLSFilesRefused:         {"tls_files_refused", "New certificates, keys or authorities that were refused; the old ones stayed."},
	TLSFilesTaken:           {"tls_files_taken", "New certificates, keys or authorities that came into use."},
	TLSHandshakesRefused:    {"tls_handshakes_refused", "Connections to xDS whose TLS handshake failed."},
}

// String returns the counter's name without prefix and suffix.
func (c Counter) String() string { return table[c].name }
