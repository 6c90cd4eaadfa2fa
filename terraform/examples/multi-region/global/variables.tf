variable "map_file" {
  description = "The one map: regions.yaml."
  type        = string
  default     = "../regions.yaml"
}
