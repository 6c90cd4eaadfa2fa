//go:build ignore

package main

import "spillway.dev/collectors/kubeletcpureceiver"

func main() {
	var declared []row
	for _, key := range kubeletcpureceiver.Keys() {
		declared = append(declared, row{Name: key.Name, Meaning: key.Meaning})
	}
	write(kubeletcpureceiver.NewFactory().CreateDefaultConfig(), declared)
}
