//go:build ignore

package main

import "spillway.dev/collectors/kafkapartitionexporter"

func main() {
	var declared []row
	for _, key := range kafkapartitionexporter.Keys() {
		declared = append(declared, row{Name: key.Name, Meaning: key.Meaning})
	}
	write(kafkapartitionexporter.NewFactory().CreateDefaultConfig(), declared)
}
