// Package kafkapartitionexporter writes traces and metrics to Kafka: one message per batch and partition, all spans
// of a trace in one partition, no message above a limit.
package kafkapartitionexporter
