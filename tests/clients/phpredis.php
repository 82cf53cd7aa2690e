<?php
// SPDX-License-Identifier: MIT
// phpredis, with a persistent connection that is taken up twice: see README.md.

const PIPELINE = 1000;

function say(string $what, $value = ''): void
{
    echo rtrim("$what $value"), "\n";
}

function connect(): Redis
{
    $client = new Redis();
    $socket = getenv('SOCKET');
    if ($socket)
        $client->pconnect($socket);
    else
        $client->pconnect('127.0.0.1', (int) getenv('PORT'));
    if (getenv('PASSWORD'))
        $client->auth(getenv('PASSWORD'));
    return $client;
}

say('version', phpversion('redis'));
$client = connect();
$first = $client->rawCommand('CLIENT', 'ID');
unset($client);
$client = connect();
$second = $client->rawCommand('CLIENT', 'ID');
say('pconnect', $first && $first === $second ? 'same' : "$first $second");
say('ping', $client->ping() === true ? 'PONG' : 'no');

$client->multi(Redis::PIPELINE);
for ($user = 1; $user <= PIPELINE; $user++)
    $client->rawCommand('LIKE', $user, 42);
say('pipeline', array_count_values($client->exec())[1] ?? 0);
say('array', implode(',', $client->rawCommand('LIKED', 7, 42, 43)));

$reply = $client->rawCommand('LIKE', 7, 'nobody');
say($reply === false ? 'error' : 'reply', $client->getLastError());

say('restart');
fgets(STDIN);
say('again', $client->rawCommand('LIKE', 1001, 42));
