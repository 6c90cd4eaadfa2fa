// Package kafkapartitionexporter writes traces and metrics to Kafka. It writes one message per
// batch and partition, keeps all spans of a trace in one partition, and writes no message above a
// limit.
package kafkapartitionexporter
