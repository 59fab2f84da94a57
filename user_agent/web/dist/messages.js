import{a}from"./chunk-77IQL7RU.js";export{a as messages};
