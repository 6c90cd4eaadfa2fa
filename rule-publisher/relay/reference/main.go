// Command reference prints the declarations of the relay's settings and metrics as one JSON object.
// tools/box_tables.py makes the tables of REFERENCE.md from them.
package main

import (
	"encoding/json"
	"log"
	"os"

	"spillway.dev/relay/internal/relay"
)

func main() {
	declared := map[string]any{"settings": relay.Settings(), "metrics": relay.Metrics()}
	if err := json.NewEncoder(os.Stdout).Encode(declared); err != nil {
		log.Fatal(err)
	}
}
