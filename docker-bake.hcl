# The images that `make images` builds, for docker buildx bake. tools/images sets the variables.
variable "REGISTRY" {}
variable "VERSION" {}
variable "COMMIT" {}
variable "SOURCE" { default = "" }
variable "PLATFORMS" { default = "linux/amd64,linux/arm64" }
variable "PUSH" { default = "" }

group "default" {
  targets = ["image"]
}

# One target per image, named as the image. Titles and licences are labels of the Dockerfiles.
target "image" {
  name = image.name
  matrix = {
    image = [
      { name = "spillway-collector", dockerfile = "collectors/Dockerfile" },
      { name = "spillway-relay", dockerfile = "rule-publisher/relay/Dockerfile" },
      { name = "spillway-envoy", dockerfile = "wasm/Dockerfile" },
      { name = "spillway-streams", dockerfile = "streams/Dockerfile" },
      { name = "spillway-optimizer", dockerfile = "optimizer/Dockerfile" },
      { name = "spillway-publisher", dockerfile = "rule-publisher/publisher/Dockerfile" },
      { name = "spillway-clickhouse-migrate", dockerfile = "infra/clickhouse/Dockerfile" },
      { name = "spillway-emulator", dockerfile = "lab/emulator/Dockerfile" },
      { name = "spillway-lab", dockerfile = "lab/Dockerfile" },
    ]
  }
  context    = "."
  dockerfile = image.dockerfile
  platforms  = split(",", PLATFORMS)
  tags       = ["${REGISTRY}/${image.name}:${VERSION}", "${REGISTRY}/${image.name}:${COMMIT}"]
  labels = {
    "org.opencontainers.image.version"  = VERSION
    "org.opencontainers.image.revision" = COMMIT
    "org.opencontainers.image.source"   = SOURCE != "" ? SOURCE : null
  }
  attest = ["type=sbom", "type=provenance,mode=max"]
  output = [PUSH != "" ? "type=registry" : "type=oci,dest=dist/images/${image.name}.tar"]
}
