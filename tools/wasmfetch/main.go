// Command wasmfetch takes a WebAssembly module as Istio's agent does, by Istio's own code: from the url and with the
// sha256 of a WasmPlugin. It prints the path of the file that Envoy would load, in the given folder.
package main

import (
	"fmt"
	"os"
	"time"

	"istio.io/istio/pkg/wasm"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: wasmfetch URL SHA256 FOLDER")
		os.Exit(64)
	}
	cache := wasm.NewLocalFileCache(os.Args[3], wasm.Options{})
	defer cache.Cleanup()
	path, err := cache.Get(os.Args[1], wasm.GetOptions{
		Checksum:       os.Args[2],
		ResourceName:   "spillway",
		RequestTimeout: 30 * time.Second,
		PullPolicy:     wasm.IfNotPresent,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
