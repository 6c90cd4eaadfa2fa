"""Kafka's IncrementalAlterConfigs request, which aiokafka lacks.

It sets the named settings of topics and leaves their other settings unchanged. Source: Kafka
protocol guide, https://kafka.apache.org/protocol#The_Messages_IncrementalAlterConfigs.
"""

from collections.abc import Mapping

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import TopicAuthorizationFailedError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int8, Int16, Int32, Schema, String

_TOPIC, _SET = 2, 0


class _Response(Response):
    API_KEY = 44
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "resources",
            Array(
                ("error_code", Int16),
                ("error_message", String("utf-8")),
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
            ),
        ),
    )


class _Struct(RequestStruct):
    API_KEY = 44
    API_VERSION = 0
    RESPONSE_TYPE = _Response
    SCHEMA = Schema(
        (
            "resources",
            Array(
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
                (
                    "configs",
                    Array(
                        ("config_name", String("utf-8")),
                        ("config_operation", Int8),
                        ("config_value", String("utf-8")),
                    ),
                ),
            ),
        ),
        ("validate_only", Boolean),
    )


class Alter(Request[_Struct]):
    """Request that sets `settings`, given by topic and setting name."""

    API_KEY = 44

    def __init__(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        self._resources = [
            (_TOPIC, topic, [(name, _SET, value) for name, value in wanted.items()])
            for topic, wanted in settings.items()
        ]

    def build(self, request_struct_class: type[_Struct]) -> _Struct:
        return request_struct_class(self._resources, False)


async def alter(admin: AIOKafkaAdminClient, settings: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Changes settings of topics; returns once the brokers have answered.

    Returns the topics that the brokers refused, each with the wanted settings and the reason. A
    refused topic keeps its settings; the other topics have theirs changed.
    """
    refused = {}
    answer = await admin._send_to_controller(Alter(settings))
    for code, message, _, topic in answer.resources:
        if code:
            wanted = ", ".join(f"{name}={value}" for name, value in settings[topic].items())
            error = for_code(code)
            reason = message or error.__name__
            if error is TopicAuthorizationFailedError:
                reason += " This needs the right AlterConfigs, `alter` in infra/kafka/acls.yaml."
            refused[topic] = f"{wanted}: cannot be set: {reason}"
    return refused
