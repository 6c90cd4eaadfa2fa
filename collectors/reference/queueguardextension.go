//go:build ignore

package main

import "spillway.dev/collectors/queueguardextension"

func main() {
	var declared []row
	for _, key := range queueguardextension.Keys() {
		declared = append(declared, row{Name: key.Name, Meaning: key.Meaning})
	}
	write(queueguardextension.NewFactory().CreateDefaultConfig(), declared)
}
