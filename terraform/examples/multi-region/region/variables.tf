variable "region" {
  description = "Which region of the map this state is of."
  type        = string
}

variable "map_file" {
  description = "The one map: regions.yaml."
  type        = string
  default     = "../regions.yaml"
}

variable "public" {
  description = "Output `public` of global/."
  type        = object({ trust = string, ruleset_keys = string })
  default     = null
}

variable "identity" {
  description = "The region's entry of output `identities` of global/."
  type        = any
  default     = null
  sensitive   = true
}
